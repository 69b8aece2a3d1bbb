"""Level 3: the elements that everything else refused, in exact integers."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import (
    ExactRow,
    FloatFormat,
    RowGradient,
    Term,
    centred_signs,
    round_sum_of_roots,
)
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Rows, blocks_of_rows
from truenorm.kernels.storage import widen

__all__ = ["column_sums", "finite_blocks", "settle_dx", "settle_y", "signs"]

Float64 = NDArray[np.float64]

BLOCK = 2**13

TERMS = 2**17
"""Terms of dgamma held at a time, some 200 bytes each."""


def settle_y(
    tested: Tested,
    x: Float64,
    gamma: Float64,
    beta: Float64,
    eps: float,
    target: FloatFormat,
) -> None:
    """Put the correctly rounded y in the place of every refused one."""
    for i in np.flatnonzero(tested.refused.any(axis=1)).tolist():
        row = ExactRow(x[i].tolist(), eps)
        columns = np.flatnonzero(tested.refused[i]).tolist()
        exact = [row.y(j, float(gamma[j]), float(beta[j]), target) for j in columns]
        _put(tested, i, columns, exact, target)


def settle_dx(
    tested: Tested,
    dy: Float64,
    x: Float64,
    gamma: Float64,
    eps: float,
    target: FloatFormat,
) -> None:
    """Put the correctly rounded dx in the place of every refused one."""
    for i in np.flatnonzero(tested.refused.any(axis=1)).tolist():
        gradient = RowGradient(ExactRow(x[i].tolist(), eps), gamma.tolist(), dy[i].tolist())
        columns = np.flatnonzero(tested.refused[i]).tolist()
        exact = [gradient.dx(j, target) for j in columns]
        _put(tested, i, columns, exact, target)


def _put(
    tested: Tested, i: int, columns: list[int], exact: list[float], target: FloatFormat
) -> None:
    """Store results of a row, of the target type already, and accept them."""
    tested.values[i, columns] = round_to(np.array(exact), target)
    tested.refused[i] = False


def _column_terms(
    dy: Float64, x: Float64, columns: NDArray[np.intp], eps: float
) -> list[list[Term]]:
    """Return the terms of dgamma for each of the columns, one for each row."""
    terms: list[list[Term]] = [[] for _ in columns]
    for row_dy, row_x in zip(dy, x, strict=True):
        row = ExactRow(row_x.tolist(), eps)
        for kept, j in zip(terms, columns, strict=True):
            over, under = float(row_dy[j]).as_integer_ratio()
            kept.append(Term(row.centred[j] * over, row.scale * under, row.root))
    return terms


def finite_blocks(dy: Rows, x: Rows, elements: int) -> Iterator[tuple[Float64, Float64]]:
    """Yield dy and x once more, for the columns that have finite terms only."""
    for start, stop in blocks_of_rows(x.count, x.size, elements):
        slopes = widen(dy.read(start, stop), dy.target)
        slopes[~np.isfinite(slopes)] = 0.0
        yield slopes, widen(x.read(start, stop), x.target)


def column_sums(
    dy: Rows, x: Rows, columns: NDArray[np.intp], eps: float, target: FloatFormat
) -> list[float]:
    """Return some columns of dgamma, so many at a time that their terms stay few."""
    step = max(1, TERMS // x.count)
    sums: list[float] = []
    for group in (columns[k : k + step] for k in range(0, len(columns), step)):
        terms: list[list[Term]] = [[] for _ in group]
        for slopes, values in finite_blocks(dy, x, BLOCK):
            found = _column_terms(slopes, values, group, eps)
            for column, more in zip(terms, found, strict=True):
                column.extend(more)
        sums += [round_sum_of_roots(column, target) for column in terms]
    return sums


def signs(x: Float64) -> Float64:
    """Return the exact signs of x - mean(x), row by row."""
    return np.array([centred_signs(row) for row in x.tolist()], dtype=np.float64).reshape(x.shape)
