"""Backward of rows with infinities that are not centred.

There r = 0, so that xhat is 0 beside infinities, and of them NaN (D33): such a row spoils its dx
and the columns of its infinities, but not the rest of dgamma. Other rows are done without it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels import fallback
from truenorm.kernels.call import Call, Flags, Norm, Parameter, Settings, finite_part
from truenorm.kernels.columns import (
    SpecialColumns,
    SweepsLike,
    in_parts,
    merged,
    round_dbeta,
    round_dgamma,
    summed,
)
from truenorm.kernels.fallback import RefusedRows, settle_in_integers
from truenorm.kernels.fixed_point import Digits, Number, OnLattice, Terms
from truenorm.kernels.protocol import (
    Backend,
    Backward,
    ColumnGradients,
    ExactSums,
    Forward,
    RowSums,
    States,
)
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, Rows, Source, Stored, Target, blocks_of, widen
from truenorm.kernels.special import SpecialSum, has_infinity, signs, special_columns, special_y
from truenorm.kernels.tuning import CHANGED, NOT_FINITE, REFUSED, UNDEFINED

Float64 = NDArray[np.float64]


def infinite_rows(norm: Norm, x: Rows, kept: Float64) -> NDArray[np.intp]:
    """Return the rows of which infinities spare the elements beside them."""
    if norm.centred:
        return np.empty(0, np.intp)
    undefined = np.flatnonzero(np.isnan(kept[:, 0]))
    if not len(undefined):
        return undefined
    return undefined[has_infinity(widen(Source(x).copy(undefined), x.target))]


class BesideInfinities:
    """All rows but those with infinities, as copies.

    Attributes
    ----------
    rows : ndarray
        Which they are.
    dy, x, dx : Rows
        What they are; dx is to be written.
    dgamma : SpecialSum
        What the infinities make of dgamma. A norm that is not centred has no dbeta.
    """

    def __init__(
        self, norm: Norm, infinite: NDArray[np.intp], dy: Rows, x: Rows, dx: Rows
    ) -> None:
        self.rows = np.delete(np.arange(x.count), infinite)
        self._found = np.empty((len(self.rows), x.size), canonical_nan(x.target).dtype)
        given = Source(dy), Source(x)
        self.dy, self.x, self.dx = (
            Rows(block, (1,), x.target)
            for block in (*(each.copy(self.rows) for each in given), self._found)
        )
        self._output, self._infinite = Target(dx), infinite
        self.dgamma = SpecialSum(x.size)
        slopes, values = (widen(each.copy(infinite), x.target) for each in given)
        self.dgamma.add(slopes * signs(values, norm))

    def write_dx(self) -> None:
        """Put dx of all rows where it belongs."""
        self._output.write(self.rows, self._found)
        nothing = np.full((len(self._infinite), self.x.size), canonical_nan(self.x.target))
        self._output.write(self._infinite, nothing)


def forward(
    backend: Backend, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
) -> Float64:
    """Write y, and return what is kept of each row."""
    special = special_columns(gamma, beta, x.target)
    call = Call.of(settings, x, gamma, beta)
    level = backend.forward(call, special)
    run = _ForwardRun(call, level, gamma, beta, special if special.any() else None)
    kept = np.empty((x.count, settings.norm.numbers_kept))
    source, output = Source(x), Target(y)
    parts = level.parts
    in_parts(lambda k: run.part(parts[k], source, kept, output), len(parts), level.threads)
    return kept


class _ForwardRun(NamedTuple):
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
        settle_in_integers(fallback.settle_y, y, refused, self.call, x)
        if self.special is not None:
            y[:, self.special] = self._by_rule(x, self.special)

    def _by_rule(self, x: Stored, columns: Flags) -> Stored:
        """Return y in the special columns."""
        return special_y(widen(x, self.call.target), self.gamma, self.beta, columns, self.call)


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
    run = _BackwardRun(call, level, Source(dy), Source(x), kept, Target(dx), has_dx)
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


class _BackwardRun(NamedTuple):
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
        settle_in_integers(fallback.settle_dx, dx, refused, self.call, dy, x)

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


class Share(NamedTuple):
    """What some rows add to the sums over all rows."""

    dgamma: Number
    """One column more than there are: the sum of the units that terms were rounded to."""
    dbeta: Number
    of_dgamma: NDArray[np.uint8]
    of_dbeta: NDArray[np.uint8]
    """Bits for what is not finite among the terms: see `SpecialSum.flags`."""


def backward_partial(
    backend: Backend,
    settings: Settings,
    dy: Rows,
    x: Rows,
    kept: Float64,
    gamma: Parameter,
    beta: Parameter,
    dx: Rows,
) -> Share:
    """Write dx, and return the share of these rows."""
    infinite = infinite_rows(settings.norm, x, kept)
    if len(infinite):
        others = BesideInfinities(settings.norm, infinite, dy, x, dx)
        found = backward_partial(
            backend, settings, others.dy, others.x, kept[others.rows], gamma, beta, others.dx
        )
        others.write_dx()
        return found._replace(of_dgamma=found.of_dgamma | others.dgamma.flags)
    call = Call.of(settings, x, gamma, beta)
    level = _WithTerms(backend.backward(call, Source(dy)), backend.terms(call))
    is_own = settings.backend == backend.name
    sums, special = swept(call, level, dy, x, kept, gamma, dx, is_own=is_own)
    if special is None:
        special = SpecialColumns(call)
    dbeta = _dbeta(level, sums.rows, special, dy, x) if call.of_beta else Digits(call.size)
    return Share(sums.terms.number(), dbeta.number(), special.dgamma.flags, special.dbeta.flags)


@dataclass
class _Sums:
    """The sums of plain backward, of which dbeta is used, and those of the terms."""

    rows: RowSums
    terms: OnLattice

    def merge(self, other: "_Sums") -> None:
        """Add the sums over other rows."""
        self.rows.merge(other.rows)
        self.terms.merge(other.terms)


class _WithTerms(SweepsLike):
    """Backward that rounds the terms of each block of rows while it is in the cache."""

    def __init__(self, level: Backward[Any], terms: Terms[Any]) -> None:
        super().__init__(level)
        self._level, self._terms = level, terms
        self.adopt, self.look_again = level.adopt, level.look_again
        self.dgamma_again, self.dbeta_again = level.dgamma_again, level.dbeta_again

    def sums(self) -> _Sums:
        """Return sums over no rows."""
        return _Sums(self._level.sums(), self._terms.sums())

    def look(
        self, dy: Stored, x: Stored, kept: Float64, dx: Stored, sums: _Sums, states: States
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        both = sums.rows, sums.terms
        return self._terms.look(self._level, dy, x, kept, dx, both, states)


def _dbeta(level: _WithTerms, sums: RowSums, special: SpecialColumns, dy: Rows, x: Rows) -> Digits:
    """Return dbeta without any error, by a second sweep where the first was not exact.

    Columns with terms that are not finite are left out of that.
    """
    found = cast(ExactSums, sums.dbeta).as_digits()
    if found is not None:
        return found
    total = Digits(x.size)
    left = np.flatnonzero(special.dbeta.none)
    while len(left):
        sweep = level.dbeta_again(left)
        assert sweep is not None
        better = cast(ExactSums, summed(sweep, Source(dy), Source(x))).as_digits()
        assert better is not None
        total.put(better.number(), sweep.columns)
        left = left[len(sweep.columns) :]
    return total
