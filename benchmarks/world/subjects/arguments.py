"""What the judge passes to a subject: arrays that have gradients, then labels and eps."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def split(arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the arrays that have gradients, then the other arguments: labels and eps."""
    arrays = [
        each for each in arguments if isinstance(each, np.ndarray) and each.dtype.kind != "i"
    ]
    return arrays, list(arguments[len(arrays) :])
