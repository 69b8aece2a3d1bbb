"""Backward and the terms of dgamma in one sweep: a few rows at a time, in a cache."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.lattice.terms import ALL_DONE, add_terms
from truenorm.kernels.fused.compiled.narrow.backward import backward
from truenorm.kernels.fused.compiling import kernel
from truenorm.kernels.ground import GROUP, Array, Centred, Coded, Numbers

__all__ = ["backward_with_terms"]

IN_CACHE = 2**15
"""Elements of x, dy and dx each: together half a megabyte."""


@kernel
def backward_with_terms(
    given: tuple[Coded, Coded, Numbers],
    gamma: Coded,
    numbers: Numbers,
    centred: Centred,
    found: tuple[Coded, Array],
    sums: Numbers,
    bins: tuple[Array, Array, Numbers],
    start: int,
    scratch: Numbers,
    term_scratch: Numbers,
) -> Any:
    """Write dx and what became of rows from one on, and add to the sums and to the bins of terms.

    `given` are dy, x and what was kept; `found` are dx and the states; `bins` their units, their
    counts and themselves.

    Returns the first row whose terms are not added, how far backward came, and what `backward`
    returns: these rows must have their terms added before the rest is done.
    """
    dy, x, kept = given
    dx, status = found
    units, counts, array = bins
    rows, size = x.shape
    together = max(1, IN_CACHE // (GROUP * size)) * GROUP
    left, smallest, largest = 0, np.int64(0xFFFFFFFF), np.int64(0)
    for first in range(start, rows, together):
        stop = min(first + together, rows)
        more, low, high = backward(
            dy[first:stop],
            x[first:stop],
            kept[first:stop],
            gamma,
            numbers[0],
            centred,
            dx[first:stop],
            sums,
            status[first:stop],
            scratch,
        )
        left, smallest, largest = left + more, min(smallest, low), max(largest, high)
        why, row, _ = add_terms(
            dy[:stop],
            x[:stop],
            status[:stop],
            first,
            numbers,
            centred,
            units,
            counts,
            array,
            term_scratch,
        )
        if why != ALL_DONE:
            return row, stop, left, smallest, largest
    return rows, rows, left, smallest, largest
