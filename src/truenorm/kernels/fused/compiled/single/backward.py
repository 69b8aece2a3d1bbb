"""Fast mode, backward: rows of at most float32 in float32, sums over rows in float64.

Four rows are taken at once, AT_ONCE of their columns at a time; beside each such piece that is
written, the sums along the next four rows are taken. Rows that float32 cannot hold are done in
float64 by the kernel of level 1, as in forward. A block of rows has sums of its own; how rows are
cut into blocks depends on their number alone.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single
from truenorm.kernels.fused.compiled.elements.filling import fill
from truenorm.kernels.fused.compiled.narrow.forward import SPECIAL
from truenorm.kernels.fused.compiled.rows.kept import kept_numbers
from truenorm.kernels.fused.compiled.single.forward import is_easy
from truenorm.kernels.fused.compiled.single.hard_rows import (
    HARD,
    NO_NUMBERS,
    do_in_float64,
)
from truenorm.kernels.fused.compiled.single.sums import AT_ONCE, RUNS, add_single_sums
from truenorm.kernels.fused.compiled.single.writing import (
    HIGH,
    LOW,
    SINGLE,
    SINGLES,
    A,
    Q,
    R,
    add_to_sums,
    write_four,
)
from truenorm.kernels.fused.compiling import compiled, kernel
from truenorm.kernels.ground import (
    CHANGED,
    DONE,
    Centred,
    Coded,
    Numbers,
    Singles,
    States,
)

__all__ = ["FAST_BACKWARD", "FOUR", "backward"]

FOUR = 4
SUMS = 4
"""Sums along a row."""

FAST_BACKWARD = FOUR * (SINGLES + SUMS) + (RUNS + AT_ONCE) // 2 + 2 * AT_ONCE + HARD
"""Scratch that backward needs."""


@compiled
def _mean(kept: Numbers, centred: Centred) -> Any:
    """Return the mean of a row as a pair of float32 numbers."""
    near, low, _ = kept_numbers(kept, centred)
    high = np.float32(near + low)
    return high, np.float32((near - high) + low)


@compiled
def _describe(
    size: int, kept: Numbers, eps: float, centred: Centred, sums: Numbers, row: Numbers
) -> Any:
    """Find the numbers of a row in float32, if they can be had; return whether x has changed.

    g must be neither so large nor so small that its products leave the range of float32.
    """
    fill(row[:SINGLES], 0.0)
    v = kept_numbers(kept, centred)[2]
    if (centred is not None and size == 2) or not is_easy(v, eps):
        return False
    c, a, p, square = sums[0] / size, sums[1] / size, sums[2] / size, sums[3] / size
    if 2.0**-100 < square < 2.0**100:
        w = v + eps
        row[HIGH], row[LOW] = _mean(kept, centred)
        row[R], row[Q], row[SINGLE] = 1 / np.sqrt(w), p / w, 1.0
        row[A] = -0.0 if centred is None else a  # g less -0 is +0 where it is -0
    if centred is None:
        return not abs(c - v) <= 2.0**-19 * v
    return not abs(c) <= 2.0**-19 * np.sqrt(v)


@compiled(inline="always")  # without references nothing returns an array
def _piece(rows: Coded, i: int, left: int, right: int, is_there: bool, nothing: Coded) -> Any:
    """Return some columns of a row, or zeros in its place."""
    return rows[i, left:right] if is_there else nothing[: right - left]


@compiled
def _add_terms(x: Coded, dy: Coded, row: Numbers, dgamma: Numbers) -> None:
    """Add terms of dgamma that are larger than float32 allows, while their sum may not be."""
    high, low, r = np.float32(row[HIGH]), np.float32(row[LOW]), np.float32(row[R])
    for j in range(x.shape[0]):
        c = (decode_single(x[j]) - high) - low
        dgamma[j] += np.float64(decode_single(dy[j])) * np.float64(c * r)


@compiled
def _write_columns(
    dy: Coded,
    x: Coded,
    gamma: Coded,
    columns: Any,
    singles: Numbers,
    terms: Singles,
    nothing: Coded,
    dx: Coded,
    sums: Numbers,
) -> None:
    """Write dx of some columns of up to four rows, and add to their sums over rows."""
    start, left, right = columns
    zeros, waste = nothing[:AT_ONCE], nothing[AT_ONCE:]
    is0, is1 = singles[SINGLE] != 0, singles[SINGLES + SINGLE] != 0
    is2, is3 = singles[2 * SINGLES + SINGLE] != 0, singles[3 * SINGLES + SINGLE] != 0
    dy0 = _piece(dy, start, left, right, is0, zeros)
    dy1 = _piece(dy, start + 1, left, right, is1, zeros)
    dy2 = _piece(dy, start + 2, left, right, is2, zeros)
    dy3 = _piece(dy, start + 3, left, right, is3, zeros)
    finite = write_four(
        _piece(x, start, left, right, is0, zeros),
        _piece(x, start + 1, left, right, is1, zeros),
        _piece(x, start + 2, left, right, is2, zeros),
        _piece(x, start + 3, left, right, is3, zeros),
        dy0,
        dy1,
        dy2,
        dy3,
        gamma[left:right],
        singles,
        _piece(dx, start, left, right, is0, waste),
        _piece(dx, start + 1, left, right, is1, waste),
        _piece(dx, start + 2, left, right, is2, waste),
        _piece(dx, start + 3, left, right, is3, waste),
        terms,
    )
    if not finite:
        fill(terms, np.float32(0))
        for k in range(FOUR):
            if singles[k * SINGLES + SINGLE] != 0:
                _add_terms(
                    x[start + k, left:right],
                    dy[start + k, left:right],
                    singles[k * SINGLES :],
                    sums[0, left:right],
                )
    add_to_sums(dy0, dy1, dy2, dy3, terms, sums[0, left:right], sums[1, left:right])


@kernel
def backward(
    dy: Coded,
    x: Coded,
    kept: Numbers,
    gamma: Coded,
    eps: float,
    centred: Centred,
    dx: Coded,
    sums: Numbers,
    status: States,
    scratch: Numbers,
) -> Any:
    """Write dx and what became of each row, and add to dgamma and dbeta.

    Returns how many rows are not done. dx must not overlap the others.
    """
    rows, size = x.shape
    singles, along = scratch[: FOUR * SINGLES], scratch[FOUR * SINGLES :][: FOUR * SUMS]
    rest = scratch[FOUR * (SINGLES + SUMS) :]
    floats = rest[: (RUNS + AT_ONCE) // 2].view(np.float32)
    runs, terms = floats[:RUNS], floats[RUNS:]
    nothing = rest[(RUNS + AT_ONCE) // 2 :][: 2 * AT_ONCE].view(x.dtype)
    hard = rest[(RUNS + AT_ONCE) // 2 + 2 * AT_ONCE :]
    fill(nothing[:AT_ONCE], x.dtype.type(0))
    left_over = 0
    for start in range(-FOUR, rows, FOUR):
        following = min(rows - start - FOUR, FOUR)  # rows of the next four
        fill(along, 0.0)
        for left in range(0, size, AT_ONCE):
            right = min(left + AT_ONCE, size)
            if start >= 0:
                _write_columns(
                    dy, x, gamma, (start, left, right), singles, terms, nothing, dx, sums
                )
            for k in range(following):
                i = start + FOUR + k
                high, low = _mean(kept[i], centred)
                add_single_sums(
                    x[i, left:right],
                    dy[i, left:right],
                    gamma[left:right],
                    high,
                    low,
                    centred,
                    runs,
                    along[k * SUMS :],
                )
        for k in range(FOUR):
            i = start + k
            if 0 <= i < rows:
                if singles[k * SINGLES + SINGLE] == 0:
                    status[i] = do_in_float64(
                        dy[i], x[i], kept[i], gamma, eps, centred, hard, dx[i], sums
                    )
                if status[i] == NO_NUMBERS:
                    return SPECIAL
                left_over += status[i] != DONE
        for k in range(FOUR):
            row = singles[k * SINGLES :]
            fill(row[:SINGLES], 0.0)
            if k < following:
                i = start + FOUR + k
                changed = _describe(size, kept[i], eps, centred, along[k * SUMS :], row)
                status[i] = CHANGED if changed else DONE
    return left_over
