"""What partials are rounded to."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["RoundedGradients"]


class RoundedGradients(NamedTuple):
    """Gradients of gamma and beta; None where there was no gamma or beta.

    Attributes
    ----------
    dgamma, dbeta : ndarray or None
        Of the shape and type of gamma and beta.
    undecided : ndarray of int
        Columns, in C order, whose dgamma is not proven to be the exact answer rounded: it is what
        rounds correctly if the sum is the zero or the tie that it cannot be told from. A column
        whose terms are all far below the largest of their rows, by 2**40 for instance, may be
        known to a few digits only: then it is the middle of what it can be.
    """

    dgamma: NDArray[Any] | None
    dbeta: NDArray[Any] | None
    undecided: NDArray[np.intp]
