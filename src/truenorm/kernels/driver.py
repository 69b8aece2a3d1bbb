"""Run a backend over all rows of a call.

The driver divides the rows into blocks, runs them on threads, writes the results that depend on
infinities and NaN, and takes undecided rows and columns through the fallback.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels import fallback
from truenorm.kernels.call import Call, Flags, finite_part
from truenorm.kernels.fallback import UndecidedRows
from truenorm.kernels.fixed_point import FixedPoint, FixedPointSum
from truenorm.kernels.protocol import (
    Backend,
    Backward,
    ColumnGradients,
    ColumnSweep,
    FixedPointDgamma,
    FixedPointTotal,
    Forward,
    Mergeable,
    RowStatus,
    RowSums,
    Sweep,
)
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Range, Rows, Source, Stored, Target, blocks_of, widen
from truenorm.kernels.special import (
    SpecialSum,
    has_infinity,
    infinite_terms,
    signs,
    special_columns,
    special_y,
)
from truenorm.kernels.tuning import CHANGED, NOT_FINITE, UNDECIDED, UNDEFINED
from truenorm.threads import for_each_block

Float64 = NDArray[np.float64]
Indices = NDArray[np.intp]
Sums = TypeVar("Sums", bound=Mergeable)

X_CHANGED = "x changed since the forward pass: its rows no longer have the {} that was saved"


def forward(backend: Backend, call: Call, x: Rows, y: Rows) -> Float64:
    """Compute y. Return the saved statistics of each row."""
    special = special_columns(call)
    saved = np.empty((x.count, call.norm.saved_numbers))
    kernel = backend.forward(call)
    run = _ForwardRun(
        call, kernel, Source(x), saved, Target(y), special if special.any() else None
    )
    _run_parts(lambda _, rows: run.part(rows), kernel)
    return saved


class _ForwardRun(NamedTuple):
    """A forward pass over all rows."""

    call: Call
    kernel: Forward
    x: Source
    saved: Float64
    y: Target
    special: Flags | None
    """Columns whose y depends on an infinity or NaN; None if there are none."""

    def part(self, rows: Range) -> None:
        """Compute y of a part of the rows."""
        undecided = UndecidedRows(self.y, self.call.size, self._recompute)
        for start, stop in blocks_of(rows, self.kernel.rows_at_once):
            y = self.y.block(start, stop)
            x = self.x.block_beside(y, start, stop)
            saved = self.saved[start:stop]
            status = np.empty(stop - start, np.uint8)
            if self.kernel.compute(x, y, saved, status):
                self._write_undefined(x, y, np.flatnonzero(status == UNDEFINED))
                indices = np.flatnonzero(status == UNDECIDED)
                if len(indices):
                    undecided.add(start, indices, y, x, saved)
            if self.special is not None:
                defined = np.flatnonzero(status != UNDEFINED)
                y[np.ix_(defined, self.special)] = self._special_y(x[defined], self.special)
            self.y.done(start, stop, y)
            undecided.write_batches()
        undecided.flush()

    def _write_undefined(self, x: Stored, y: Stored, rows: Indices) -> None:
        """Write y of rows that are not finite, or have no spread while eps is 0."""
        y[rows] = canonical_nan(self.call.x_format)
        if not self.call.norm.centred:  # then elements beside infinities have a result
            rows = rows[has_infinity(widen(x[rows], self.call.x_format))]
            y[rows] = self._special_y(x[rows], np.ones(self.call.size, bool))

    def _recompute(self, y: Stored, x: Stored, saved: Float64) -> None:
        """Recompute undecided rows by tier 2, then the elements still undecided by tier 3."""
        undecided = self.kernel.recompute(x, saved, y)
        if undecided.any():
            fallback.exact_y(y, undecided, x, self.call)
        if self.special is not None:
            y[:, self.special] = self._special_y(x, self.special)

    def _special_y(self, x: Stored, columns: Flags) -> Stored:
        return special_y(widen(x, self.call.x_format), columns, self.call)


class BackwardRows(NamedTuple):
    """The rows of a backward pass."""

    dy: Rows
    x: Rows
    saved: Float64
    dx: Rows
    saved_by: str
    """Name of the backend that computed the saved statistics."""


def backward(backend: Backend, call: Call, rows: BackwardRows) -> ColumnGradients:
    """Compute dx. Return dgamma and dbeta."""
    swept = _swept(backend, backend.backward, call, rows)
    return ColumnGradients(swept.dgamma(), swept.dbeta())


class PartialSums(NamedTuple):
    """Sums of dgamma and dbeta over some rows of a batch."""

    dgamma: FixedPoint
    """It has one more column than gamma: the sum of the units of all terms."""
    dbeta: FixedPoint
    dgamma_flags: NDArray[np.uint8]
    dbeta_flags: NDArray[np.uint8]
    """Infinities and NaN among the terms: see `SpecialSum.flags`."""


def backward_partial(backend: Backend, call: Call, rows: BackwardRows) -> PartialSums:
    """Compute dx. Return the sums of dgamma and dbeta over these rows."""

    def kernel_of(call: Call) -> Backward[Any]:
        return _FixedPointBackward(backend.backward(call), backend.fixed_point_dgamma(call))

    swept = _swept(backend, kernel_of, call, rows)
    dbeta = FixedPointSum(call.size)
    if call.beta.float_format is not None:
        dbeta = swept.fixed_point_dbeta()
    special = swept.special
    return PartialSums(
        swept.sums.fixed_point.number(), dbeta.number(), special.dgamma.flags, special.dbeta.flags
    )


class _FixedPointBackward:
    """A backward pass that also adds the fixed-point terms of each block of rows."""

    def __init__(self, kernel: Backward[Any], dgamma: FixedPointDgamma[Any]) -> None:
        self._kernel, self._dgamma = kernel, dgamma
        self.threads, self.parts = kernel.threads, kernel.parts
        self.rows_at_once = kernel.rows_at_once
        self.recompute_saved, self.recompute = kernel.recompute_saved, kernel.recompute
        self.tier2_dgamma, self.exact_dbeta = kernel.tier2_dgamma, kernel.exact_dbeta

    def sums(self) -> "_FixedPointSums":
        """Return zeroed accumulators."""
        return _FixedPointSums(self._kernel.sums(), self._dgamma.sums())

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: "_FixedPointSums",
        status: RowStatus,
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if one is not OK."""
        some_not_ok = self._kernel.compute(dy, x, saved, dx, sums.rows, status)
        self._dgamma.add(dy, x, status if some_not_ok else None, sums.fixed_point)
        return some_not_ok


class _FixedPointSums:
    """The accumulators of a backward pass, and those of the fixed-point terms."""

    def __init__(self, rows: RowSums, fixed_point: FixedPointTotal) -> None:
        self.rows, self.fixed_point = rows, fixed_point
        self.dgamma, self.dbeta = rows.dgamma, rows.dbeta
        self.fixed_point_dbeta = rows.fixed_point_dbeta

    def merge(self, other: "_FixedPointSums") -> None:
        """Add the sums over other rows."""
        self.rows.merge(other.rows)
        self.fixed_point.merge(other.fixed_point)


class _SpecialColumns:
    """Infinities and NaN among the terms of dgamma and dbeta."""

    def __init__(self, size: int) -> None:
        self.dgamma, self.dbeta = SpecialSum(size), SpecialSum(size)


class _Swept(NamedTuple):
    """The sums over all rows, not rounded yet."""

    call: Call
    kernel: Backward[Any]
    sums: Any
    special: _SpecialColumns
    dy: Rows
    x: Rows

    def dgamma(self) -> Float64 | None:
        """Round dgamma; return None if there is no gamma."""
        target = self.call.gamma.float_format
        if target is None:
            return None
        tested = self.sums.dgamma(target)
        special, columns = self.special.dgamma, self.kernel.tier2_dgamma
        dgamma, undecided = self._recomputed(tested, special, columns, target)
        if len(undecided):
            exact = fallback.column_sums(self.dy, self.x, undecided, self.call, target)
            dgamma[undecided] = exact
        special.apply(dgamma)
        return dgamma

    def dbeta(self) -> Float64 | None:
        """Round dbeta; return None if there is no beta."""
        target = self.call.beta.float_format
        if target is None:
            return None
        tested, special = self.sums.dbeta(target), self.special.dbeta
        dbeta, _ = self._recomputed(tested, special, self.kernel.exact_dbeta, target)
        special.apply(dbeta)
        return dbeta

    def _recomputed(
        self,
        tested: Tested,
        special: SpecialSum,
        sweep_of: Callable[[Indices], ColumnSweep[Any] | None],
        target: FloatFormat,
    ) -> tuple[Float64, Indices]:
        """Recompute undecided columns; return all columns, and those that remain undecided.

        Columns with infinities or NaN need no arithmetic.
        """
        undecided = np.flatnonzero(tested.undecided & special.none)
        if len(undecided) and (sweep := sweep_of(undecided)) is not None:
            better = self._column_sums(sweep).rounded(target)
            tested.values[undecided] = better.values
            undecided = undecided[better.undecided]
        return widen(tested.values, target), undecided

    def fixed_point_dbeta(self) -> FixedPointSum:
        """Return the exact dbeta; columns with infinities or NaN may be left out."""
        dbeta: FixedPointSum | None = self.sums.fixed_point_dbeta()
        if dbeta is None:
            dbeta = FixedPointSum(self.call.size)
            columns = np.flatnonzero(self.special.dbeta.none)
            if len(columns):
                total = self._column_sums(self.kernel.exact_dbeta(columns))
                dbeta.put(total.number(), columns)
        return dbeta

    def _column_sums(self, sweep: ColumnSweep[Any]) -> Any:
        """Return the sums of some columns over all rows."""
        shares = [sweep.sums() for _ in sweep.parts]
        dy, x = Source(self.dy), Source(self.x)

        def part(k: int, rows: Range) -> None:
            for start, stop in blocks_of(rows, sweep.rows_at_once):
                sweep.add(dy.block(start, stop), x.block(start, stop), shares[k])

        _run_parts(part, sweep)
        return merged(shares)


def _swept(
    backend: Backend,
    kernel_of: Callable[[Call], Backward[Any]],
    call: Call,
    rows: BackwardRows,
) -> _Swept:
    """Compute dx of all rows. Return the sums over them."""
    infinite = _rows_with_infinities(call, rows)
    if len(infinite):
        return _swept_without(infinite, backend, kernel_of, call, rows)
    kernel = kernel_of(call)
    if rows.saved_by != backend.name:  # bounds of a kernel hold for its own statistics
        rows = rows._replace(saved=_recomputed_statistics(call, kernel, rows))
    run = _BackwardRun(call, kernel, Source(rows.dy), Source(rows.x), rows.saved, Target(rows.dx))
    shares = [_Share(kernel.sums()) for _ in kernel.parts]
    _run_parts(lambda k, part: run.part(part, shares[k]), kernel)
    special = run.add_special_rows(shares)
    sums = merged([share.sums for share in shares])
    return _Swept(call, kernel, sums, special, rows.dy, rows.x)


def _rows_with_infinities(call: Call, rows: BackwardRows) -> Indices:
    """Return the rows of RMSNorm with infinities.

    There r = 0, so that xhat is 0 beside infinities and NaN at them (D33). Such a row makes its
    dx NaN, and dgamma in the columns of its infinities.
    """
    if call.norm.centred:
        return np.empty(0, np.intp)
    undefined = np.flatnonzero(np.isnan(rows.saved[:, 0]))
    if not len(undefined):
        return undefined
    return undefined[has_infinity(widen(Source(rows.x).copy(undefined), call.x_format))]


def _swept_without(
    infinite: Indices,
    backend: Backend,
    kernel_of: Callable[[Call], Backward[Any]],
    call: Call,
    rows: BackwardRows,
) -> _Swept:
    """Sweep over copies of all other rows, then add the effect of the rows with infinities."""
    others = np.delete(np.arange(rows.x.count), infinite)
    dy, x, dx = Source(rows.dy), Source(rows.x), Target(rows.dx)
    nan = canonical_nan(call.x_format)
    results = np.empty((len(others), call.size), nan.dtype)
    dy_copy, x_copy, dx_copy = (
        Rows(block, (1,), call.x_format) for block in (dy.copy(others), x.copy(others), results)
    )
    copies = BackwardRows(dy_copy, x_copy, rows.saved[others], dx_copy, rows.saved_by)
    swept = _swept(backend, kernel_of, replace(call, count=len(others)), copies)
    dx.write(others, results)
    dx.write(infinite, np.full((len(infinite), call.size), nan))
    infinite_dy, infinite_x = (widen(each.copy(infinite), call.x_format) for each in (dy, x))
    swept.special.dgamma.add(infinite_dy * signs(infinite_x, call.norm))
    return swept


def _recomputed_statistics(call: Call, kernel: Backward[Any], rows: BackwardRows) -> Float64:
    """Return the saved statistics as this kernel would have computed them."""
    x, saved = Source(rows.x), rows.saved.copy()
    for part in kernel.parts:
        for start, stop in blocks_of(part, kernel.rows_at_once):
            if kernel.recompute_saved(x.block(start, stop), saved[start:stop]):
                raise _x_changed(call)
    return saved


def _x_changed(call: Call) -> RuntimeError:
    return RuntimeError(X_CHANGED.format("mean" if call.norm.centred else "mean square"))


@dataclass
class _Share:
    """Results of a part of the rows."""

    sums: RowSums
    not_finite: list[int] = field(default_factory=list)
    """Rows whose dy is not finite: they are added after all others."""
    has_undefined: bool = False


class _BackwardRun(NamedTuple):
    """A backward pass over all rows."""

    call: Call
    kernel: Backward[Any]
    dy: Source
    x: Source
    saved: Float64
    dx: Target

    def part(self, rows: Range, share: _Share) -> None:
        """Compute dx of a part of the rows, and add to its sums."""
        undecided = UndecidedRows(self.dx, self.call.size, self._recompute)
        nan = canonical_nan(self.call.x_format)
        for start, stop in blocks_of(rows, self.kernel.rows_at_once):
            dy, x = self.dy.block(start, stop), self.x.block(start, stop)
            dx = self.dx.block(start, stop)
            status = self._compute(dy, x, self.saved[start:stop], dx, share)
            if not self.call.gamma.is_finite:
                dx[...] = nan
            elif status is not None:
                dx[(status == UNDEFINED) | (status == NOT_FINITE)] = nan
                indices = np.flatnonzero(status == UNDECIDED)
                if len(indices):
                    undecided.add(start, indices, dx, dy, x)
            if status is not None:
                share.not_finite += (start + np.flatnonzero(status == NOT_FINITE)).tolist()
            self.dx.done(start, stop, dx)
            undecided.write_batches()
        undecided.flush()

    def _compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, share: _Share
    ) -> RowStatus | None:
        """Compute dx of a block and add to the sums; return the row status, None if all are OK."""
        status = np.empty(len(x), np.uint8)
        if not self.kernel.compute(dy, x, saved, dx, share.sums, status):
            return None
        if (status == CHANGED).any():
            raise _x_changed(self.call)
        share.has_undefined |= bool((status == UNDEFINED).any())
        return status

    def _recompute(self, dx: Stored, dy: Stored, x: Stored) -> None:
        """Recompute undecided rows by tier 2, then the elements still undecided by tier 3."""
        undecided = self.kernel.recompute(dy, x, dx)
        if undecided.any():
            fallback.exact_dx(dx, undecided, dy, x, self.call)

    def add_special_rows(self, shares: list[_Share]) -> _SpecialColumns:
        """Add the finite terms of rows whose dy is not finite; return the other terms.

        A row without a result makes all of dgamma NaN.
        """
        special = _SpecialColumns(self.call.size)
        not_finite = sorted(row for share in shares for row in share.not_finite)
        for start, stop in blocks_of((0, len(not_finite)), self.kernel.rows_at_once):
            rows = np.array(not_finite[start:stop])
            dy, x = self.dy.copy(rows), self.x.copy(rows)
            dy_values, x_values = (widen(each, self.call.x_format) for each in (dy, x))
            terms = infinite_terms(dy_values, finite_part(x_values), self.call.norm)
            special.dgamma.add(terms)
            special.dbeta.add(dy_values)
            dy[~np.isfinite(dy_values)] = 0
            self._compute(dy, x, self.saved[rows], np.empty_like(x), shares[-1])
        if any(share.has_undefined for share in shares):
            special.dgamma.set_nan()
        return special


def merged(shares: list[Sums]) -> Sums:
    """Add up sums over parts pairwise: each goes through few additions, in a fixed order."""
    while (count := len(shares)) > 1:
        half = (count + 1) // 2
        for share, other in zip(shares, shares[half:], strict=False):
            share.merge(other)
        shares = shares[:half]
    return shares[0]


def _run_parts(work: Callable[[int, Range], None], sweep: Sweep) -> None:
    """Call `work` with the index and the rows of every part, on the threads of the sweep."""
    parts = sweep.parts
    if sweep.threads == 1 or len(parts) == 1:
        for k, rows in enumerate(parts):
            work(k, rows)
        return

    def quiet(k: int, _: int) -> None:
        with np.errstate(all="ignore"):  # which the caller set for its own thread only
            work(k, parts[k])

    for_each_block(quiet, [(k, k + 1) for k in range(len(parts))], sweep.threads)
