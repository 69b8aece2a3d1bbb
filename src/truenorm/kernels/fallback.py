"""Tier 3: undecided elements in exact integers, and batches of undecided rows."""

import math
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import (
    ExactRow,
    FloatFormat,
    RowGradient,
    Term,
    round_sum_of_roots,
    scaled_integers,
)
from truenorm.kernels.call import Call, Flags, Norm
from truenorm.kernels.rounding import round_to
from truenorm.kernels.rows import Range, Rows, Stored, Target, blocks_of, widen

Float64 = NDArray[np.float64]

BATCH = 2**13
"""Elements that are recomputed together: double-double has many temporaries."""

BLOCK = 2**13
"""Elements of a block of rows that is read for the sums of columns."""

TERMS = 2**17
"""Terms of dgamma in memory at a time, some 200 bytes each."""


class UndecidedRows:
    """Collects undecided rows with copies of their inputs, and recomputes them in batches.

    For each block of rows, `add` comes before the block is stored, and `write_batches` after.

    A batch of one row is recomputed in place: copying would take as long.

    Parameters
    ----------
    output : Target
        Where the results are written.
    size : int
        Elements of a row.
    recompute : callable
        Takes the results and the inputs of rows, and corrects the results.
    """

    def __init__(self, output: Target, size: int, recompute: Callable[..., None]) -> None:
        self._output = output
        self._recompute = recompute
        self._batch = max(1, BATCH // size)
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._count = 0

    def add(
        self, start: int, rows: NDArray[np.intp], results: Stored, *inputs: NDArray[Any]
    ) -> None:
        """Add some rows of the block that begins at `start`."""
        if self._batch == 1:
            for row in rows.tolist():
                self._recompute(*(part[row : row + 1] for part in (results, *inputs)))
            return
        for first in range(0, len(rows), self._batch):  # a block may have many of them
            some = rows[first : first + self._batch]
            self._waiting.append((start + some, *(part[some] for part in (results, *inputs))))
            self._count += len(some)

    def write_batches(self) -> None:
        """Recompute and write rows until less than a batch waits.

        The blocks of these rows must be stored before, or they would overwrite them.
        """
        while self._count >= self._batch:
            self._write_batch()

    def flush(self) -> None:
        """Recompute and write all rows that wait."""
        while self._waiting:
            self._write_batch()

    def _write_batch(self) -> None:
        """Recompute and write the first rows that wait: less than two batches."""
        batch, count = [], 0
        while self._waiting and count < self._batch:
            batch.append(self._waiting.pop(0))
            count += len(batch[-1][0])
        self._count -= count
        indices, results, *inputs = map(np.concatenate, zip(*batch, strict=True))
        self._recompute(results, *inputs)
        self._output.write(indices, results)


def exact_y(y: Stored, undecided: Flags, x: Stored, call: Call) -> None:
    """Write the correctly rounded y of the undecided elements."""
    gamma, beta = call.gamma.finite.tolist(), call.beta.finite.tolist()
    for i in np.flatnonzero(undecided.any(axis=1)).tolist():
        row = _exact_row(widen(x[i], call.x_format), call)
        columns = np.flatnonzero(undecided[i])
        exact = [row.y(j, gamma[j], beta[j], call.x_format) for j in columns.tolist()]
        y[i, columns] = round_to(np.array(exact), call.x_format)


def exact_dx(dx: Stored, undecided: Flags, dy: Stored, x: Stored, call: Call) -> None:
    """Write the correctly rounded dx of the undecided elements."""
    gamma = scaled_integers(call.gamma.finite.tolist())
    for i in np.flatnonzero(undecided.any(axis=1)).tolist():
        row = _exact_row(widen(x[i], call.x_format), call)
        gradient = RowGradient(row, gamma, widen(dy[i], call.x_format).tolist())
        columns = np.flatnonzero(undecided[i])
        exact = [gradient.dx(j, call.x_format) for j in columns.tolist()]
        dx[i, columns] = round_to(np.array(exact), call.x_format)


def _exact_row(x: Float64, call: Call) -> ExactRow:
    return ExactRow(x.tolist(), call.eps, is_centred=call.norm.centred)


def column_sums(
    dy: Rows, x: Rows, columns: NDArray[np.intp], call: Call, target: FloatFormat
) -> list[float]:
    """Return some columns of dgamma, correctly rounded."""
    step = max(1, TERMS // x.count)
    signatures = _signatures(x)
    sums: list[float] = []
    for group in (columns[k : k + step] for k in range(0, len(columns), step)):
        remaining = group[~_cancelling(dy, x, signatures, group, call.norm)]
        values = dict.fromkeys(group.tolist(), 0.0)
        if len(remaining):
            terms = terms_of(dy, x, remaining, call)
            rounded = [round_sum_of_roots(column, target) for column in terms]
            values |= zip(remaining.tolist(), rounded, strict=True)
        sums += values.values()
    return sums


def terms_of(dy: Rows, x: Rows, columns: NDArray[np.intp], call: Call) -> list[list[Term]]:
    """Return the terms of dgamma for each of the columns, over all rows."""
    terms: list[list[Term]] = [[] for _ in columns]
    for dy_block, x_block in _finite_blocks(dy, x):
        for dy_row, x_row in zip(dy_block, x_block, strict=True):
            # In a row with infinities xhat is 0 elsewhere (D33), and those columns are not here.
            if not np.isfinite(x_row).all():
                continue
            row = _exact_row(x_row, call)
            for column, j in zip(terms, columns, strict=True):
                over, under = float(dy_row[j]).as_integer_ratio()
                column.append(Term(row.centred[j] * over, row.scale * under, row.root))
    return terms


def _blocks(rows: Rows) -> Iterator[Range]:
    return blocks_of((0, rows.count), max(1, BLOCK // rows.size))


def _finite_blocks(dy: Rows, x: Rows) -> Iterator[tuple[Float64, Float64]]:
    """Yield blocks of dy and x, with zero in place of a dy that is not finite."""
    for start, stop in _blocks(x):
        dy_block = widen(dy.read(start, stop), dy.float_format)
        dy_block[~np.isfinite(dy_block)] = 0.0
        yield dy_block, widen(x.read(start, stop), x.float_format)


def _signatures(x: Rows) -> list[tuple[bytes, float]]:
    """Return for each row a hash shared by rows equal up to sign, and that sign."""
    signatures = []
    for start, stop in _blocks(x):
        for row in widen(x.read(start, stop), x.float_format):
            sign = -1.0 if row[(row != 0).argmax()] < 0 else 1.0
            upright = sign * row + 0.0  # no -0
            signatures.append((blake2b(upright.tobytes()).digest(), sign))
    return signatures


def _cancelling(
    dy: Rows, x: Rows, signatures: list[tuple[bytes, float]], columns: NDArray[np.intp], norm: Norm
) -> Flags:
    """Return True for columns of dgamma that are zero because rows cancel each other.

    Rows with the same x have the same xhat, and those with -x the opposite. If in a column the
    dy of such rows, with their signs, add up to zero, all their terms do.
    """
    groups: dict[bytes, list[Float64]] = {}
    signature = iter(signatures)
    for dy_block, x_block in _finite_blocks(dy, x):
        weights = dy_block[:, columns]
        if not norm.centred:  # then xhat = 0 where x = 0
            weights[x_block[:, columns] == 0] = 0.0
        for row in weights:
            key, sign = next(signature)
            groups.setdefault(key, []).append(sign * row)
    zero = np.ones(len(columns), bool)
    for group in groups.values():
        zero &= _adds_up_to_zero(np.array(group))
    return zero


def _adds_up_to_zero(dy: Float64) -> Flags:
    """Return True for columns whose exact sum is zero."""
    if len(dy) <= 2:
        zero: Flags = dy.sum(axis=0) == 0
        return zero
    try:
        return np.array([math.fsum(column) == 0 for column in dy.T])
    except OverflowError:  # of a partial sum: then the column is not known to be zero
        return np.zeros(dy.shape[1], bool)
