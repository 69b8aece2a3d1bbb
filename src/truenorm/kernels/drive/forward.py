"""Forward: y of all rows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import integers
from truenorm.kernels.backend import Backend, Forward
from truenorm.kernels.call import Call, Parameter, Settings
from truenorm.kernels.drive.refused import RefusedRows
from truenorm.kernels.ground import REFUSED, UNDEFINED
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Rows, Source, Target
from truenorm.kernels.special import special_columns, special_y
from truenorm.kernels.storage import Stored, widen
from truenorm.kernels.sweeping import blocks_of, in_parts

__all__ = ["forward"]

Float64 = NDArray[np.float64]

NUMBERS_KEPT = 3
"""For each row: the mean as a pair, and the variance or a power of two."""


def forward(
    backend: Backend, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
) -> Float64:
    """Write y, and return what is kept of each row."""
    special = special_columns(gamma, beta, x.target)
    call = Call.of(settings, x, gamma, beta, special)
    run = _Run(call, backend.forward(call), gamma, beta, has_special=bool(special.any()))
    kept = np.empty((x.count, NUMBERS_KEPT))
    source, output = Source(x), Target(y)
    in_parts(lambda k: run.part(k, source, kept, output), len(run.level.parts), run.level.threads)
    return kept


class _Run(NamedTuple):
    """What stays the same over all rows."""

    call: Call
    level: Forward
    gamma: Parameter
    beta: Parameter
    has_special: bool
    """Whether y of some columns is said by rule."""

    def part(self, number: int, x: Source, kept: Float64, y: Target) -> None:
        """Write y of a part of the rows."""
        refused = RefusedRows(y, self.call.size, self._settle)
        for start, stop in blocks_of(self.level.parts[number], self.level.rows_at_once):
            found = y.block(start, stop)
            given = x.block_beside(found, start, stop)
            states = np.empty(stop - start, np.uint8)
            if self.level.look(given, found, kept[start:stop], states):
                found[states == UNDEFINED] = canonical_nan(self.call.target)
                rows = np.flatnonzero(states == REFUSED)
                if len(rows):
                    refused.add(start, rows, found, given, kept[start:stop])
            if self.has_special:
                defined = np.flatnonzero(states != UNDEFINED)
                found[np.ix_(defined, self.call.special)] = self._by_rule(given[defined])
            y.done(start, stop, found)
        refused.flush()

    def _settle(self, y: Stored, x: Stored, kept: Float64) -> None:
        """Take refused rows through a second look, and what is left through integers."""
        refused = self.level.look_again(x, kept, y)
        left = np.flatnonzero(refused.any(axis=1))
        if len(left):
            call = self.call
            tested = Tested(y[left], refused[left])
            values = widen(x[left], call.target)
            integers.settle_y(tested, values, call)
            y[left] = tested.values
        if self.has_special:
            y[:, self.call.special] = self._by_rule(x)

    def _by_rule(self, x: Stored) -> Stored:
        """Return y in the special columns."""
        return special_y(widen(x, self.call.target), self.gamma, self.beta, self.call)
