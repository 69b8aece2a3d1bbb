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
from truenorm.kernels.fallback import UndecidedRows, recompute_in_integers
from truenorm.kernels.fixed_point import DgammaTotal, FixedPoint, FixedPointDgamma, FixedPointSum
from truenorm.kernels.protocol import (
    Backend,
    Backward,
    ColumnGradients,
    ExactSums,
    Forward,
    RowStatus,
    RowSums,
)
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Range, Rows, Source, Stored, Target, blocks_of, widen
from truenorm.kernels.special import SpecialSum, has_infinity, signs, special_columns, special_y
from truenorm.kernels.tuning import CHANGED, NOT_FINITE, UNDECIDED, UNDEFINED

Float64 = NDArray[np.float64]


def infinite_rows(norm: Norm, x: Rows, saved: Float64) -> NDArray[np.intp]:
    """Return the rows of which infinities spare the elements beside them."""
    if norm.centred:
        return np.empty(0, np.intp)
    undefined = np.flatnonzero(np.isnan(saved[:, 0]))
    if not len(undefined):
        return undefined
    return undefined[has_infinity(widen(Source(x).copy(undefined), x.float_format))]


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
        self._found = np.empty((len(self.rows), x.size), canonical_nan(x.float_format).dtype)
        given = Source(dy), Source(x)
        self.dy, self.x, self.dx = (
            Rows(block, (1,), x.float_format)
            for block in (*(each.copy(self.rows) for each in given), self._found)
        )
        self._output, self._infinite = Target(dx), infinite
        self.dgamma = SpecialSum(x.size)
        slopes, values = (widen(each.copy(infinite), x.float_format) for each in given)
        self.dgamma.add(slopes * signs(values, norm))

    def write_dx(self) -> None:
        """Put dx of all rows where it belongs."""
        self._output.write(self.rows, self._found)
        nothing = np.full((len(self._infinite), self.x.size), canonical_nan(self.x.float_format))
        self._output.write(self._infinite, nothing)


def forward(
    backend: Backend, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
) -> Float64:
    """Write y, and return what is saved of each row."""
    special = special_columns(gamma, beta, x.float_format)
    call = Call.of(settings, x, gamma, beta)
    level = backend.forward(call)
    run = _ForwardRun(call, level, gamma, beta, special if special.any() else None)
    saved = np.empty((x.count, settings.norm.saved_numbers))
    source, output = Source(x), Target(y)
    parts = level.parts
    in_parts(lambda k: run.part(parts[k], source, saved, output), len(parts), level.threads)
    return saved


class _ForwardRun(NamedTuple):
    """What stays the same over all rows."""

    call: Call
    level: Forward
    gamma: Parameter
    beta: Parameter
    special: Flags | None
    """Columns whose y is said by rule; None if there are none."""

    def part(self, rows: Range, x: Source, saved: Float64, y: Target) -> None:
        """Write y of a part of the rows."""
        undecided = UndecidedRows(y, self.call.size, self._settle)
        for start, stop in blocks_of(rows, self.level.rows_at_once):
            found = y.block(start, stop)
            given = x.block_beside(found, start, stop)
            status = np.empty(stop - start, np.uint8)
            if self.level.compute(given, found, saved[start:stop], status):
                self._write_undefined(given, found, np.flatnonzero(status == UNDEFINED))
                again = np.flatnonzero(status == UNDECIDED)
                if len(again):
                    undecided.add(start, again, found, given, saved[start:stop])
            if self.special is not None:
                defined = np.flatnonzero(status != UNDEFINED)
                by_rule = self._by_rule(given[defined], self.special)
                found[np.ix_(defined, self.special)] = by_rule
            y.done(start, stop, found)
        undecided.flush()

    def _write_undefined(self, x: Stored, y: Stored, rows: NDArray[np.intp]) -> None:
        """Write y of rows that are not finite, or have no spread while eps is 0."""
        y[rows] = canonical_nan(self.call.x_format)
        if not self.call.norm.centred:  # then infinities spare the elements beside them
            rows = rows[has_infinity(widen(x[rows], self.call.x_format))]
            y[rows] = self._by_rule(x[rows], np.ones(self.call.size, bool))

    def _settle(self, y: Stored, x: Stored, saved: Float64) -> None:
        """Take undecided rows through a second look, and what is left through integers."""
        undecided = self.level.recompute(x, saved, y)
        recompute_in_integers(fallback.exact_y, y, undecided, self.call, x)
        if self.special is not None:
            y[:, self.special] = self._by_rule(x, self.special)

    def _by_rule(self, x: Stored, columns: Flags) -> Stored:
        """Return y in the special columns."""
        return special_y(widen(x, self.call.x_format), self.gamma, self.beta, columns, self.call)


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
    saved: Float64,
    gamma: Parameter,
    beta: Parameter,
    dx: Rows,
) -> ColumnGradients:
    """Write dx, and return dgamma and dbeta."""
    infinite = infinite_rows(settings.norm, x, saved)
    if len(infinite):
        others = BesideInfinities(settings.norm, infinite, dy, x, dx)
        found = backward(
            backend, settings, others.dy, others.x, saved[others.rows], gamma, beta, others.dx
        )
        others.write_dx()
        if found.dgamma is not None:
            others.dgamma.apply(found.dgamma)
        return found
    call = Call.of(settings, x, gamma, beta)
    level = backend.backward(call)
    is_own = settings.backend == backend.name
    sums, special = swept(call, level, dy, x, saved, gamma, dx, is_own=is_own)
    return ColumnGradients(
        round_dgamma(call, level, sums, special, dy, x),
        round_dbeta(call, level, sums, special, dy, x),
    )


def swept(
    call: Call,
    level: Backward[Any],
    dy: Rows,
    x: Rows,
    saved: Float64,
    gamma: Parameter,
    dx: Rows,
    *,
    is_own: bool,
) -> tuple[Any, SpecialColumns | None]:
    """Write dx; return the sums over rows, and what of them is not by arithmetic.

    `is_own` tells whether the backend itself did forward, and so saved what is saved.
    """
    if not is_own:
        saved = _adopted(call, level, Source(x), saved)
    has_dx = bool(np.isfinite(gamma.values).all())  # if not, all dx are NaN
    run = _BackwardRun(call, level, Source(dy), Source(x), saved, Target(dx), has_dx)
    shares = [_Share(level.sums()) for _ in level.parts]
    in_parts(lambda k: run.part(level.parts[k], shares[k]), len(shares), level.threads)
    special = run.add_left_out(shares)
    return merged([share.sums for share in shares]), special


def _adopted(call: Call, level: Backward[Any], x: Source, saved: Float64) -> Float64:
    """Return what the backend would have saved of all rows: its bounds hold for its own sums."""
    saved = saved.copy()
    for part in level.parts:
        for start, stop in blocks_of(part, level.rows_at_once):
            if level.recompute_saved(x.block(start, stop), saved[start:stop]):
                raise _x_changed(call)
    return saved


def _x_changed(call: Call) -> RuntimeError:
    return RuntimeError(X_CHANGED.format("mean" if call.norm.centred else "mean square"))


class _BackwardRun(NamedTuple):
    """What stays the same over all rows."""

    call: Call
    level: Backward[Any]
    dy: Source
    x: Source
    saved: Float64
    dx: Target
    has_dx: bool

    def part(self, rows: Range, share: _Share) -> None:
        """Write dx of a part of the rows, and add to its sums."""
        undecided = UndecidedRows(self.dx, self.call.size, self._settle)
        nan = canonical_nan(self.call.x_format)
        for start, stop in blocks_of(rows, self.level.rows_at_once):
            dy, x = self.dy.block(start, stop), self.x.block(start, stop)
            dx = self.dx.block(start, stop)
            status = self._compute(dy, x, self.saved[start:stop], dx, share)
            if status is not None:
                dx[(status == UNDEFINED) | (status == NOT_FINITE)] = nan
                share.left_out += (start + np.flatnonzero(status == NOT_FINITE)).tolist()
                again = np.flatnonzero(status == UNDECIDED)
                if len(again) and self.has_dx:
                    undecided.add(start, again, dx, dy, x)
            if not self.has_dx:
                dx[...] = nan
            self.dx.done(start, stop, dx)
        undecided.flush()

    def _compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, share: _Share
    ) -> RowStatus | None:
        """Write dx of a block and add to the sums; return the status of rows if some are left."""
        status = np.empty(len(x), np.uint8)
        if not self.level.compute(dy, x, saved, dx, share.sums, status):
            return None
        if (status == CHANGED).any():
            raise _x_changed(self.call)
        share.undefined |= bool((status == UNDEFINED).any())
        return status

    def _settle(self, dx: Stored, dy: Stored, x: Stored) -> None:
        """Take undecided rows through a second look, and what is left through integers."""
        undecided = self.level.recompute(dy, x, dx)
        recompute_in_integers(fallback.exact_dx, dx, undecided, self.call, dy, x)

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
            slopes = widen(dy, self.call.x_format)
            special.add(slopes, finite_part(widen(x, self.call.x_format)))
            dy[~np.isfinite(slopes)] = 0
            self._compute(dy, x, self.saved[rows], np.empty_like(x), shares[-1])
        if any(share.undefined for share in shares):
            special.dgamma.spoil()
        return special


class Share(NamedTuple):
    """What some rows add to the sums over all rows."""

    dgamma: FixedPoint
    """One column more than there are: the sum of the units that terms were rounded to."""
    dbeta: FixedPoint
    of_dgamma: NDArray[np.uint8]
    of_dbeta: NDArray[np.uint8]
    """Bits for what is not finite among the terms: see `SpecialSum.flags`."""


def backward_partial(
    backend: Backend,
    settings: Settings,
    dy: Rows,
    x: Rows,
    saved: Float64,
    gamma: Parameter,
    beta: Parameter,
    dx: Rows,
) -> Share:
    """Write dx, and return the share of these rows."""
    infinite = infinite_rows(settings.norm, x, saved)
    if len(infinite):
        others = BesideInfinities(settings.norm, infinite, dy, x, dx)
        found = backward_partial(
            backend, settings, others.dy, others.x, saved[others.rows], gamma, beta, others.dx
        )
        others.write_dx()
        return found._replace(of_dgamma=found.of_dgamma | others.dgamma.flags)
    call = Call.of(settings, x, gamma, beta)
    level = _WithTerms(backend.backward(call), backend.fixed_point_dgamma(call))
    is_own = settings.backend == backend.name
    sums, special = swept(call, level, dy, x, saved, gamma, dx, is_own=is_own)
    if special is None:
        special = SpecialColumns(call)
    dbeta = (
        _dbeta(level, sums.rows, special, dy, x) if call.beta_format else FixedPointSum(call.size)
    )
    return Share(sums.terms.number(), dbeta.number(), special.dgamma.flags, special.dbeta.flags)


@dataclass
class _Sums:
    """The sums of plain backward, of which dbeta is used, and those of the terms."""

    rows: RowSums
    terms: DgammaTotal

    def merge(self, other: "_Sums") -> None:
        """Add the sums over other rows."""
        self.rows.merge(other.rows)
        self.terms.merge(other.terms)


class _WithTerms(SweepsLike):
    """Backward that rounds the terms of each block of rows while it is in the cache."""

    def __init__(self, level: Backward[Any], terms: FixedPointDgamma[Any]) -> None:
        super().__init__(level)
        self._level, self._terms = level, terms
        self.recompute_saved, self.recompute = level.recompute_saved, level.recompute
        self.tier2_dgamma, self.exact_dbeta = level.tier2_dgamma, level.exact_dbeta

    def sums(self) -> _Sums:
        """Return sums over no rows."""
        return _Sums(self._level.sums(), self._terms.sums())

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: _Sums, status: RowStatus
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        both = sums.rows, sums.terms
        return self._terms.compute(self._level, dy, x, saved, dx, both, status)


def _dbeta(
    level: _WithTerms, sums: RowSums, special: SpecialColumns, dy: Rows, x: Rows
) -> FixedPointSum:
    """Return dbeta without any error, by a second sweep where the first was not exact.

    Columns with terms that are not finite are left out of that.
    """
    found = cast(ExactSums, sums.dbeta).as_fixed_point()
    if found is not None:
        return found
    total = FixedPointSum(x.size)
    left = np.flatnonzero(special.dbeta.none)
    while len(left):
        sweep = level.exact_dbeta(left)
        assert sweep is not None
        better = cast(ExactSums, summed(sweep, Source(dy), Source(x))).as_fixed_point()
        assert better is not None
        total.put(better.number(), sweep.columns)
        left = left[len(sweep.columns) :]
    return total
