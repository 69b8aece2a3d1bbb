"""What the judge passes to a subject: arrays that have gradients, then labels and eps."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


def split(arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the arrays that have gradients, then the other arguments: labels and eps."""
    arrays = [
        each for each in arguments if isinstance(each, np.ndarray) and each.dtype.kind != "i"
    ]
    return arrays, list(arguments[len(arrays) :])


def gradients(arrays: Iterable[Any]) -> Any:
    """Return gradients as a subject does: an array, or a tuple of several."""
    known = tuple(arrays)
    return known if len(known) > 1 else known[0]
