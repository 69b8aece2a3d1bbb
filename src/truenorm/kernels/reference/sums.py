"""Sums in float64 of known depth.

The error of a sum is at most depth*u*sum|terms|, where depth is the largest number of additions
any term goes through. NumPy does not promise an order for its own sums, so they are used only
over CHUNKS terms, where every order has depth CHUNKS - 1; the rest is an explicit tree.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["column_sums", "depth_of_sum", "row_sums"]

Float64 = NDArray[np.float64]

CHUNKS = 8


def depth_of_sum(count: int) -> int:
    """Return the depth of `row_sums` and `column_sums` over so many terms."""
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return max(0, (count - 1).bit_length())
    return CHUNKS + (lanes - 1).bit_length()


def row_sums(terms: Float64) -> Float64:
    """Return the sums along the last of two axes, which is kept with length 1."""
    rows, count = terms.shape
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return _halve(terms.T.copy())[:, np.newaxis]
    partial = terms[:, : CHUNKS * lanes].reshape(rows, CHUNKS, lanes).sum(axis=1)
    if count > CHUNKS * lanes:
        partial[:, : count - CHUNKS * lanes] += terms[:, CHUNKS * lanes :]
    # Transposed in memory, so that the additions below run over many rows at once.
    return _halve(partial.T.copy())[:, np.newaxis]


def column_sums(terms: Float64) -> Float64:
    """Return the sums along the first of two axes."""
    count, columns = terms.shape
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return _halve(terms.copy())
    partial = terms[: CHUNKS * lanes].reshape(CHUNKS, lanes, columns).sum(axis=0)
    partial[: count - CHUNKS * lanes] += terms[CHUNKS * lanes :]
    return _halve(partial)


def _halve(partial: Float64) -> Float64:
    """Add the second half to the first, in place, until one is left; return it."""
    width = len(partial)
    while width > 1:
        half = (width + 1) // 2
        partial[: width - half] += partial[half:width]
        width = half
    total: Float64 = partial[0]
    return total
