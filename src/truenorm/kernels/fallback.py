"""Level 3: the elements that everything else undecided, in exact integers."""

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
from truenorm.kernels.rounding import Tested, round_to
from truenorm.kernels.rows import Range, Rows, Stored, Target, blocks_of, widen

Float64 = NDArray[np.float64]

BLOCK = 2**13

TERMS = 2**17
"""FixedPointDgamma of dgamma held at a time, some 200 bytes each."""


def exact_y(tested: Tested, x: Float64, call: Call) -> None:
    """Put the correctly rounded y in the place of every undecided one."""
    gamma, beta = call.gamma.tolist(), call.beta.tolist()
    for i in np.flatnonzero(tested.undecided.any(axis=1)).tolist():
        row = _exact(x[i], call)
        columns = np.flatnonzero(tested.undecided[i]).tolist()
        exact = [row.y(j, gamma[j], beta[j], call.x_format) for j in columns]
        _put(tested, i, columns, exact, call.x_format)


def exact_dx(tested: Tested, dy: Float64, x: Float64, call: Call) -> None:
    """Put the correctly rounded dx in the place of every undecided one."""
    scale = scaled_integers(call.gamma.tolist())
    for i in np.flatnonzero(tested.undecided.any(axis=1)).tolist():
        gradient = RowGradient(_exact(x[i], call), scale, dy[i].tolist())
        columns = np.flatnonzero(tested.undecided[i]).tolist()
        exact = [gradient.dx(j, call.x_format) for j in columns]
        _put(tested, i, columns, exact, call.x_format)


def _exact(row: Float64, call: Call) -> ExactRow:
    return ExactRow(row.tolist(), call.eps, is_centred=call.norm.centred)


def _put(
    tested: Tested, i: int, columns: list[int], exact: list[float], target: FloatFormat
) -> None:
    """Store results of a row, of the target type already, and accept them."""
    tested.values[i, columns] = round_to(np.array(exact), target)
    tested.undecided[i] = False


def _column_terms(
    dy: Float64, x: Float64, columns: NDArray[np.intp], call: Call
) -> list[list[Term]]:
    """Return the terms of dgamma for each of the columns, one for each row."""
    terms: list[list[Term]] = [[] for _ in columns]
    for row_dy, row_x in zip(dy, x, strict=True):
        row = _exact(row_x, call)
        for saved, j in zip(terms, columns, strict=True):
            over, under = float(row_dy[j]).as_integer_ratio()
            saved.append(Term(row.centred[j] * over, row.scale * under, row.root))
    return terms


def _blocks(rows: Rows) -> Iterator[Range]:
    return blocks_of((0, rows.count), max(1, BLOCK // rows.size))


def _finite_blocks(dy: Rows, x: Rows) -> Iterator[tuple[Float64, Float64]]:
    """Yield dy and x once more, for the columns that have finite terms only."""
    for start, stop in _blocks(x):
        slopes = widen(dy.read(start, stop), dy.float_format)
        slopes[~np.isfinite(slopes)] = 0.0
        yield slopes, widen(x.read(start, stop), x.float_format)


def _likenesses(x: Rows) -> list[tuple[bytes, float]]:
    """Return for each row a hash shared by rows equal up to sign, and that sign."""
    found = []
    for start, stop in _blocks(x):
        for row in widen(x.read(start, stop), x.float_format):
            sign = -1.0 if row[(row != 0).argmax()] < 0 else 1.0
            upright = sign * row + 0.0  # no -0
            found.append((blake2b(upright.tobytes()).digest(), sign))
    return found


def _vanishing(
    dy: Rows, x: Rows, likenesses: list[tuple[bytes, float]], columns: NDArray[np.intp], norm: Norm
) -> NDArray[np.bool_]:
    """Return which columns of dgamma are zero because rows cancel each other.

    Rows with the same x have the same xhat, and those with -x the opposite. If in a column the
    dy of such rows, with their signs, add up to zero, all their terms do.
    """

    def left(slopes: Float64, values: Float64) -> Float64:
        """Return the dy that meet an xhat that may not be zero."""
        zero = np.zeros((), bool) if norm.centred else values[:, columns] == 0
        return np.where(zero, 0.0, slopes[:, columns])

    classes: dict[bytes, list[Float64]] = {}
    rows = (slope for slopes, values in _finite_blocks(dy, x) for slope in left(slopes, values))
    for slope, (likeness, sign) in zip(rows, likenesses, strict=True):
        classes.setdefault(likeness, []).append(sign * slope)
    zero = np.ones(len(columns), bool)
    for alike in classes.values():
        zero &= _adds_up_to_zero(np.array(alike))
    return zero


def _adds_up_to_zero(slopes: Float64) -> NDArray[np.bool_]:
    """Return for each column whether its sum is zero, exactly."""
    if len(slopes) <= 2:
        zero: NDArray[np.bool_] = slopes.sum(axis=0) == 0
        return zero
    try:
        return np.array([math.fsum(column) == 0 for column in slopes.T])
    except OverflowError:  # in one of its steps: then nothing is said
        return np.zeros(slopes.shape[1], bool)


def column_sums(
    dy: Rows, x: Rows, columns: NDArray[np.intp], call: Call, target: FloatFormat
) -> list[float]:
    """Return some columns of dgamma, so many at a time that their terms stay few."""
    step = max(1, TERMS // x.count)
    likenesses = _likenesses(x)
    sums: list[float] = []
    for group in (columns[k : k + step] for k in range(0, len(columns), step)):
        left = group[~_vanishing(dy, x, likenesses, group, call.norm)]
        found = dict.fromkeys(group.tolist(), 0.0)
        if len(left):
            terms = terms_of(dy, x, left, call)
            rounded = [round_sum_of_roots(column, target) for column in terms]
            found |= zip(left.tolist(), rounded, strict=True)
        sums += found.values()
    return sums


def terms_of(dy: Rows, x: Rows, columns: NDArray[np.intp], call: Call) -> list[list[Term]]:
    """Return the terms of some columns, over all rows."""
    terms: list[list[Term]] = [[] for _ in columns]
    for slopes, values in _finite_blocks(dy, x):
        # Beside infinities xhat is 0 (D33), and their own columns are none of these.
        finite = np.isfinite(values).all(axis=1)
        found = _column_terms(slopes[finite], values[finite], columns, call)
        for column, more in zip(terms, found, strict=True):
            column.extend(more)
    return terms


AT_ONCE = 2**13
"""Elements that are settled together: double-double has many temporaries."""


class UndecidedRows:
    """Refused rows with copies of what they were computed from; settled, they are written.

    Rows that would wait for no others are settled in place: to copy them takes as long.

    Parameters
    ----------
    output : Target
        Where the results belong.
    size : int
        Elements of a row.
    settle : callable
        Takes results and what they were computed from, and puts the results right.
    """

    def __init__(self, output: Target, size: int, settle: Callable[..., None]) -> None:
        self._output = output
        self._settle = settle
        self._batch = max(1, AT_ONCE // size)
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._count = 0

    def add(
        self, start: int, rows: NDArray[np.intp], results: Stored, *sources: NDArray[Any]
    ) -> None:
        """Put aside some rows of a block that begins at `start`; long ones are settled there."""
        if self._batch == 1:
            for row in rows.tolist():
                self._settle(*(part[row : row + 1] for part in (results, *sources)))
            return
        for first in range(0, len(rows), self._batch):  # a block may have undecided many
            some = rows[first : first + self._batch]
            self._waiting.append((start + some, *(part[some] for part in (results, *sources))))
            self._count += len(some)
            if self._count >= self._batch:
                self.flush()

    def flush(self) -> None:
        """Settle and write everything that waits: less than two batches."""
        if not self._waiting:
            return
        indices, results, *sources = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting, self._count = [], 0
        self._settle(results, *sources)
        self._output.write(indices, results)


def recompute_in_integers(
    settle: Callable[..., None], results: Stored, undecided: Flags, call: Call, *sources: Stored
) -> None:
    """Put right, by `settle` of `integers`, the elements that a second look undecided as well."""
    left = np.flatnonzero(undecided.any(axis=1))
    if len(left):
        tested = Tested(results[left], undecided[left])
        settle(tested, *(widen(source[left], call.x_format) for source in sources), call)
        results[left] = tested.values
