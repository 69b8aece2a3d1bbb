"""Rows with elements that the rounding test refused, put aside until there are many of them.

The next level costs little for each row of a batch and much for a row alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.reference import pairs, structure
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Rows

__all__ = ["RefusedRows", "settle_dx", "settle_y"]

Float64 = NDArray[np.float64]
Settle = Callable[..., None]


class RefusedRows:
    """Refused rows with copies of what they were computed from; settled, they are written."""

    def __init__(self, output: Rows, settle: Settle, batch: int) -> None:
        self._output = output
        self._settle = settle
        self._batch = batch
        self._waiting: list[tuple[NDArray[Any], ...]] = []
        self._rows = 0

    def add(self, start: int, tested: Tested, *sources: Float64) -> None:
        """Put aside the refused rows of a block that begins at `start`."""
        rows = np.flatnonzero(tested.refused.any(axis=1))
        if len(rows):
            parts = (tested.values, tested.refused, *sources)
            self._waiting.append((start + rows, *(part[rows] for part in parts)))
            self._rows += len(rows)
        if self._rows * self._output.size >= self._batch:
            self.flush()

    def flush(self) -> None:
        """Settle and write everything that waits."""
        if not self._waiting:
            return
        indices, values, refused, *sources = map(np.concatenate, zip(*self._waiting, strict=True))
        self._waiting, self._rows = [], 0
        step = max(1, self._batch // self._output.size)
        for start in range(0, len(indices), step):  # one block may have refused many rows
            part = slice(start, start + step)
            self._settle(
                Tested(values[part], refused[part]), *(source[part] for source in sources)
            )
        for index, row in zip(indices.tolist(), values, strict=True):
            self._output.write(index, index + 1, row[np.newaxis])


def settle_y(
    tested: Tested,
    x: Float64,
    *,
    gamma: Float64,
    beta: Float64,
    eps: float,
    target: FloatFormat,
) -> None:
    """Take refused y through structure, double-double and integers."""
    structure.accept_beta_at_mean(tested, x, beta, target)
    rows = np.flatnonzero(tested.refused.any(axis=1))
    if not len(rows):
        return
    better = pairs.forward(pairs.describe(x[rows], eps), gamma, beta, target)
    _take(tested, rows, better)
    integers.settle_y(tested, x, gamma, beta, eps, target)


def settle_dx(
    tested: Tested,
    dy: Float64,
    x: Float64,
    *,
    gamma: Float64,
    eps: float,
    target: FloatFormat,
) -> None:
    """Take refused dx through double-double and integers."""
    better = pairs.backward(pairs.describe(x, eps), dy, gamma, target)
    _take(tested, np.arange(len(x)), better)
    integers.settle_dx(tested, dy, x, gamma, eps, target)


def _take(tested: Tested, rows: NDArray[np.intp], better: Tested) -> None:
    """Replace what was refused by what the next level says of it."""
    refused = tested.refused[rows]
    values = tested.values[rows]
    values[refused] = better.values[refused]
    tested.values[rows] = values
    tested.refused[rows] = refused & better.refused
