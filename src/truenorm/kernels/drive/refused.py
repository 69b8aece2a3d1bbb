"""Rows with elements that the rounding test refused, put aside until there are many of them.

In NumPy the next level costs little for each row of a batch and much for a row alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call, Flags
from truenorm.kernels.rounding import Tested
from truenorm.kernels.rows import Target
from truenorm.kernels.storage import Stored, widen

__all__ = ["RefusedRows", "settle_in_integers"]

AT_ONCE = 2**13
"""Elements that are settled together: double-double has many temporaries."""


class RefusedRows:
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
        for first in range(0, len(rows), self._batch):  # a block may have refused many
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


def settle_in_integers(
    settle: Callable[..., None], results: Stored, refused: Flags, call: Call, *sources: Stored
) -> None:
    """Put right, by `settle` of `integers`, the elements that a second look refused as well."""
    left = np.flatnonzero(refused.any(axis=1))
    if len(left):
        tested = Tested(results[left], refused[left])
        settle(tested, *(widen(source[left], call.target) for source in sources), call)
        results[left] = tested.values
