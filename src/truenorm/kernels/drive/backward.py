"""Backward: dx of all rows in one sweep, which also gathers the sums over rows."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import integers
from truenorm.kernels.backend import (
    Backend,
    Backward,
    ColumnGradients,
    RowSums,
    States,
)
from truenorm.kernels.call import Call, Parameter, Settings, finite_part
from truenorm.kernels.drive.columns import SpecialColumns, round_dbeta, round_dgamma
from truenorm.kernels.drive.infinite import BesideInfinities, infinite_rows
from truenorm.kernels.drive.refused import RefusedRows, settle_in_integers
from truenorm.kernels.ground import CHANGED, NOT_FINITE, REFUSED, UNDEFINED
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, Rows, Source, Target, blocks_of
from truenorm.kernels.storage import Stored, widen
from truenorm.kernels.sweeping import in_parts, merged

__all__ = ["backward", "swept"]

Float64 = NDArray[np.float64]

X_CHANGED = "x changed since the forward pass: its rows no longer have the {} that was saved"


@dataclass
class _Share:
    """What a part of the rows adds to the sums over rows."""

    sums: RowSums
    left_out: list[int] = field(default_factory=list)
    """Rows whose dy is not finite: they are done after all others."""
    undefined: bool = False
    """Whether some row has no result."""


def backward(
    backend: Backend,
    settings: Settings,
    dy: Rows,
    x: Rows,
    kept: Float64,
    gamma: Parameter,
    beta: Parameter,
    dx: Rows,
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    infinite = infinite_rows(settings.norm, x, kept)
    if len(infinite):
        others = BesideInfinities(settings.norm, infinite, dy, x, dx)
        found = backward(
            backend, settings, others.dy, others.x, kept[others.rows], gamma, beta, others.dx
        )
        others.write_dx()
        if found.dgamma is not None:
            others.dgamma.apply(found.dgamma)
        return found
    call = Call.of(settings, x, gamma, beta)
    level = backend.backward(call, Source(dy))
    is_own = settings.backend == backend.name
    sums, special = swept(call, level, dy, x, kept, gamma, dx, is_own=is_own)
    return ColumnGradients(
        round_dgamma(call, level, sums, special, dy, x),
        round_dbeta(call, level, sums, special, dy, x),
    )


def swept(
    call: Call,
    level: Backward[Any],
    dy: Rows,
    x: Rows,
    kept: Float64,
    gamma: Parameter,
    dx: Rows,
    *,
    is_own: bool,
) -> tuple[Any, SpecialColumns | None]:
    """Write dx; return the sums over rows, and what of them is not by arithmetic.

    `is_own` tells whether the backend itself did forward, and so kept what is kept.
    """
    if not is_own:
        kept = _adopted(call, level, Source(x), kept)
    has_dx = bool(np.isfinite(gamma.values).all())  # if not, all dx are NaN
    run = _Run(call, level, Source(dy), Source(x), kept, Target(dx), has_dx)
    shares = [_Share(level.sums()) for _ in level.parts]
    in_parts(lambda k: run.part(level.parts[k], shares[k]), len(shares), level.threads)
    special = run.add_left_out(shares)
    return merged([share.sums for share in shares]), special


def _adopted(call: Call, level: Backward[Any], x: Source, kept: Float64) -> Float64:
    """Return what the backend would have kept of all rows: its bounds hold for its own sums."""
    kept = kept.copy()
    for part in level.parts:
        for start, stop in blocks_of(part, level.rows_at_once):
            if level.adopt(x.block(start, stop), kept[start:stop]):
                raise _x_changed(call)
    return kept


def _x_changed(call: Call) -> RuntimeError:
    return RuntimeError(X_CHANGED.format("mean" if call.norm.centred else "mean square"))


class _Run(NamedTuple):
    """What stays the same over all rows."""

    call: Call
    level: Backward[Any]
    dy: Source
    x: Source
    kept: Float64
    dx: Target
    has_dx: bool

    def part(self, rows: Range, share: _Share) -> None:
        """Write dx of a part of the rows, and add to its sums."""
        refused = RefusedRows(self.dx, self.call.size, self._settle)
        nan = canonical_nan(self.call.target)
        for start, stop in blocks_of(rows, self.level.rows_at_once):
            dy, x = self.dy.block(start, stop), self.x.block(start, stop)
            dx = self.dx.block(start, stop)
            states = self._look(dy, x, self.kept[start:stop], dx, share)
            if states is not None:
                dx[(states == UNDEFINED) | (states == NOT_FINITE)] = nan
                share.left_out += (start + np.flatnonzero(states == NOT_FINITE)).tolist()
                again = np.flatnonzero(states == REFUSED)
                if len(again) and self.has_dx:
                    refused.add(start, again, dx, dy, x)
            if not self.has_dx:
                dx[...] = nan
            self.dx.done(start, stop, dx)
        refused.flush()

    def _look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, share: _Share
    ) -> States | None:
        """Write dx of a block and add to the sums; return the states of rows if some are left."""
        states = np.empty(len(x), np.uint8)
        if not self.level.look(dy, x, kept, dx, share.sums, states):
            return None
        if (states == CHANGED).any():
            raise _x_changed(self.call)
        share.undefined |= bool((states == UNDEFINED).any())
        return states

    def _settle(self, dx: Stored, dy: Stored, x: Stored) -> None:
        """Take refused rows through a second look, and what is left through integers."""
        refused = self.level.look_again(dy, x, dx)
        settle_in_integers(integers.settle_dx, dx, refused, self.call, dy, x)

    def add_left_out(self, shares: list[_Share]) -> SpecialColumns | None:
        """Add rows whose dy is not finite to the last share; return what is not by arithmetic.

        That are sums of what is not finite, and all of dgamma if a row has no result.
        """
        left_out = sorted(row for share in shares for row in share.left_out)
        if not left_out and not any(share.undefined for share in shares):
            return None
        special = SpecialColumns(self.call)
        for start, stop in blocks_of((0, len(left_out)), self.level.rows_at_once):
            rows = np.array(left_out[start:stop])
            dy, x = self.dy.copy(rows), self.x.copy(rows)
            slopes = widen(dy, self.call.target)
            special.add(slopes, finite_part(widen(x, self.call.target)))
            dy[~np.isfinite(slopes)] = 0
            self._look(dy, x, self.kept[rows], np.empty_like(x), shares[-1])
        if any(share.undefined for share in shares):
            special.dgamma.spoil()
        return special
