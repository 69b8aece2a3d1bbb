"""Four ways to compute the variance of rows, for comparison: one collapses, one is slow.

All four are the same number in exact arithmetic, (D3) of docs/derivation.md, and all work in
the type of x. docs/stability.md shows what each returns as the mean outgrows the spread.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["corrected_two_pass", "one_pass", "two_pass", "welford"]

FloatArray = NDArray[np.floating[Any]]


def one_pass(x: FloatArray) -> FloatArray:
    """Mean of squares minus square of the mean: cancels, and may even be negative.

    Its relative error grows like u*(mean/std)**2, where u is the unit roundoff.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> x = np.arange(5.0)  # the variance of 0, 1, 2, 3, 4 is 2
    >>> print(variance_forms.one_pass(x), variance_forms.one_pass(x + 1e9))
    2.0 0.0
    """
    mean = x.mean(axis=-1)
    variance: FloatArray = (x * x).mean(axis=-1) - mean * mean
    return variance


def two_pass(x: FloatArray) -> FloatArray:
    """Mean of squared deviations, what `truenorm.textbook` uses: never negative.

    An error d of the rounded mean adds d**2, which shows once the mean is rounded by as much
    as the spread.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> print(variance_forms.two_pass(np.arange(5.0) + 1e14))
    2.0
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance: FloatArray = (centred * centred).mean(axis=-1)
    return variance


def corrected_two_pass(x: FloatArray) -> FloatArray:
    """Two passes, less the square of what the rounded mean left behind.

    mean(c**2) - mean(c)**2 with c = x - mean: mean(c) would be 0 without rounding, and is
    the error d of the mean with it.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    A row of variance 2/9 whose mean, 10000000.67, is not a float32.

    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> x = np.array([1e7, 1e7 + 1, 1e7 + 1], dtype=np.float32)
    >>> print(variance_forms.two_pass(x), variance_forms.corrected_two_pass(x))
    0.6666667 0.22222221
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    left_behind = centred.mean(axis=-1)
    variance: FloatArray = (centred * centred).mean(axis=-1) - left_behind * left_behind
    return variance


def welford(x: FloatArray) -> FloatArray:
    """One pass that updates the mean and the sum of squared deviations element by element.

    Its error grows like u*mean/std, and every element waits for the one before.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> print(variance_forms.welford(np.arange(5.0)))
    2.0
    """
    mean = np.zeros_like(x[..., 0])
    squares = np.zeros_like(mean)
    for count, column in enumerate(np.moveaxis(x, -1, 0), start=1):
        deviation = column - mean
        mean = mean + deviation / count
        squares = squares + deviation * (column - mean)
    variance: FloatArray = squares / x.shape[-1]
    return variance
