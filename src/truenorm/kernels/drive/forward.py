"""Forward: y of all rows."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import integers
from truenorm.kernels.backend import Backend, Forward
from truenorm.kernels.call import Call, Flags, Parameter, Settings
from truenorm.kernels.drive.refused import RefusedRows, settle_in_integers
from truenorm.kernels.ground import REFUSED, UNDEFINED
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, Rows, Source, Target, blocks_of
from truenorm.kernels.special import has_infinity, special_columns, special_y
from truenorm.kernels.storage import Stored, widen
from truenorm.kernels.sweeping import in_parts

__all__ = ["forward"]

Float64 = NDArray[np.float64]


def forward(
    backend: Backend, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
) -> Float64:
    """Write y, and return what is kept of each row."""
    special = special_columns(gamma, beta, x.target)
    call = Call.of(settings, x, gamma, beta)
    level = backend.forward(call, special)
    run = _Run(call, level, gamma, beta, special if special.any() else None)
    kept = np.empty((x.count, settings.norm.numbers_kept))
    source, output = Source(x), Target(y)
    parts = level.parts
    in_parts(lambda k: run.part(parts[k], source, kept, output), len(parts), level.threads)
    return kept


class _Run(NamedTuple):
    """What stays the same over all rows."""

    call: Call
    level: Forward
    gamma: Parameter
    beta: Parameter
    special: Flags | None
    """Columns whose y is said by rule; None if there are none."""

    def part(self, rows: Range, x: Source, kept: Float64, y: Target) -> None:
        """Write y of a part of the rows."""
        refused = RefusedRows(y, self.call.size, self._settle)
        for start, stop in blocks_of(rows, self.level.rows_at_once):
            found = y.block(start, stop)
            given = x.block_beside(found, start, stop)
            states = np.empty(stop - start, np.uint8)
            if self.level.look(given, found, kept[start:stop], states):
                self._write_undefined(given, found, np.flatnonzero(states == UNDEFINED))
                again = np.flatnonzero(states == REFUSED)
                if len(again):
                    refused.add(start, again, found, given, kept[start:stop])
            if self.special is not None:
                defined = np.flatnonzero(states != UNDEFINED)
                by_rule = self._by_rule(given[defined], self.special)
                found[np.ix_(defined, self.special)] = by_rule
            y.done(start, stop, found)
        refused.flush()

    def _write_undefined(self, x: Stored, y: Stored, rows: NDArray[np.intp]) -> None:
        """Write y of rows that are not finite, or have no spread while eps is 0."""
        y[rows] = canonical_nan(self.call.target)
        if not self.call.norm.centred:  # then infinities spare the elements beside them
            rows = rows[has_infinity(widen(x[rows], self.call.target))]
            y[rows] = self._by_rule(x[rows], np.ones(self.call.size, bool))

    def _settle(self, y: Stored, x: Stored, kept: Float64) -> None:
        """Take refused rows through a second look, and what is left through integers."""
        refused = self.level.look_again(x, kept, y)
        settle_in_integers(integers.settle_y, y, refused, self.call, x)
        if self.special is not None:
            y[:, self.special] = self._by_rule(x, self.special)

    def _by_rule(self, x: Stored, columns: Flags) -> Stored:
        """Return y in the special columns."""
        return special_y(widen(x, self.call.target), self.gamma, self.beta, columns, self.call)
