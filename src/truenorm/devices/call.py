"""Forward and backward of arrays on a device.

In fast mode nothing waits for the device. In correct mode the host reads the row status.
Undecided rows are computed in double-double on the device (tier 2). The host computes what tier 2
leaves undecided, and everything that is not finite, and writes it back.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import check_negative_bit
from truenorm.exact import FLOAT32, FLOAT64, FloatFormat
from truenorm.kernels import driver
from truenorm.kernels.call import Call, Parameter, Settings
from truenorm.kernels.gpu.plan import LONGEST
from truenorm.kernels.gpu.runtime import Buffer, DeviceArray, Launcher, Library, widened
from truenorm.kernels.protocol import Backend, ColumnGradients
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, widen
from truenorm.kernels.tuning import OK, UNDECIDED

Array = NDArray[Any]
Indices = NDArray[np.intp]


class DeviceCall:
    """A call whose rows, along the last axis of x, are on a device.

    gamma and beta are on the device or NumPy arrays of native byte order; backward needs no beta.
    `host` is the backend that computes what the device leaves undecided.
    """

    def __init__(
        self,
        library: Library,
        host: Backend,
        settings: Settings,
        x: Any,
        gamma: Any,
        beta: Any,
        out: Any,
    ) -> None:
        if out is not None:
            raise ValueError("out must be None for arrays on a device: leave it out")
        self._library, self._runtime = library, library.runtime
        self._host, self._settings = host, settings
        self._x = self._on_device("x", x)
        *lengths, self._size = self._x.shape
        self._count = math.prod(lengths)
        if self._size > LONGEST:
            raise ValueError(
                f"the last axis of x must have at most {LONGEST} elements on a device, got "
                f"{self._size}: move x to the CPU"
            )
        self._gamma = self._parameter_on_device("gamma", gamma)
        self._beta = self._parameter_on_device("beta", beta)
        self._correct = settings.rounding == "correct"
        call = Call(
            norm=settings.norm,
            eps=settings.eps,
            arithmetic="tier1" if self._correct else "fast32",
            count=self._count,
            size=self._size,
            x_format=self._x.target,
            gamma=Parameter(np.empty(0), self._gamma and self._gamma.target),
            beta=Parameter(np.empty(0), self._beta and self._beta.target),
            threads=None,
        )
        self._launcher = Launcher(
            self._runtime,
            call,
            self._as_float32(self._gamma, 1.0),
            self._as_float32(self._beta, 0.0),
            standalone=not self._correct,
        )

    @property
    def beta_target(self) -> FloatFormat | None:
        """The type of beta, or None."""
        return self._beta and self._beta.target

    def forward(self) -> tuple[Any, DeviceArray]:
        """Return y and the saved statistics."""
        y = self._library.empty(self._x.shape, self._x.target)
        numbers = self._settings.norm.saved_numbers
        saved = self._library.empty((self._count, numbers), FLOAT64)
        status = self._launcher.forward(self._x.buffer, y.buffer, saved.buffer, self._count)
        if self._correct:
            self._complete_y(y, self._downloaded(status, (self._count,), np.uint8))
        return self._library.export(y), self._library.mark_written(saved)

    def _complete_y(self, y: DeviceArray, status: Array) -> None:
        """Compute y of rows that tier 1 left undecided or that have special values."""
        if not status.any():
            return
        parameters = self._parameter(self._gamma, 1.0), self._parameter(self._beta, 0.0)
        if all(each.is_finite for each in parameters):
            tier2 = partial(self._launcher.forward_tier2, self._x.buffer, y.buffer)
            others = np.flatnonzero((status != OK) & (status != UNDECIDED))
            indices = np.concatenate([self._undecided_rows(tier2, status), others])
        else:
            indices = np.arange(self._count)
        if not len(indices):
            return
        x = self._rows_of(self._x, indices)
        results = np.empty_like(x)
        rows = [Rows(each, (1,), self._x.target) for each in (x, results)]
        with np.errstate(all="ignore"):
            call = Call.of(self._settings, rows[0], *parameters)
            driver.forward(self._host, call, *rows)
        self._write_rows(results, y, indices)

    def backward(
        self, dy: Any, saved: DeviceArray, beta_target: FloatFormat | None
    ) -> tuple[Any, Any, Any]:
        """Return dx, dgamma and dbeta; None for a parameter that was not given."""
        dy = self._on_device("dy", dy)
        if dy.shape != self._x.shape or dy.target is not self._x.target:
            raise ValueError(
                f"dy must have the shape {self._x.shape} and type {self._x.target.name} of y, got "
                f"shape {dy.shape} and type {dy.target.name}"
            )
        empty, shape = self._library.empty, self._x.shape
        dx = empty(shape, self._x.target)
        dgamma = self._gamma and empty(shape[-1:], self._gamma.target)
        dbeta = None if beta_target is None else empty(shape[-1:], beta_target)
        self._backward(dy, self._library.wait_for(saved), dx, dgamma, dbeta)
        export = self._library.export
        return export(dx), dgamma and export(dgamma), dbeta and export(dbeta)

    def _backward(
        self,
        dy: DeviceArray,
        saved: DeviceArray,
        dx: DeviceArray,
        dgamma: DeviceArray | None,
        dbeta: DeviceArray | None,
    ) -> None:
        launcher, sums = self._launcher, self._launcher.sums()
        status_on_device = launcher.backward(
            dy.buffer, self._x.buffer, saved.buffer, dx.buffer, sums, self._count
        )
        flags = self._round_sums(sums, dgamma, dbeta)
        if not self._correct:
            return
        status = self._downloaded(status_on_device, (self._count,), np.uint8)
        columns = self._undecided_columns(flags)
        has_special = ((status != OK) & (status != UNDECIDED)).any()
        if len(columns) and not has_special:
            launcher.columns_tier2(dy.buffer, self._x.buffer, sums, columns, self._count)
            columns = self._undecided_columns(self._round_sums(sums, dgamma, dbeta))
        if len(columns) or has_special:
            self._backward_on_host(dy, saved, dx, dgamma, dbeta)
            return
        tier2 = partial(launcher.backward_tier2, dy.buffer, self._x.buffer, dx.buffer)
        indices = self._undecided_rows(tier2, status)
        if len(indices):
            self._dx_on_host(dy, saved, dx, indices)

    def _round_sums(
        self, sums: Buffer, dgamma: DeviceArray | None, dbeta: DeviceArray | None
    ) -> list[Buffer]:
        """Round dgamma and dbeta; return flags of undecided columns for each."""
        return [
            self._launcher.round_sums(sums, kernel, gradient)
            for kernel, gradient in (("round_dgamma", dgamma), ("round_dbeta", dbeta))
            if gradient is not None
        ]

    def _backward_on_host(
        self,
        dy: DeviceArray,
        saved: DeviceArray,
        dx: DeviceArray,
        dgamma: DeviceArray | None,
        dbeta: DeviceArray | None,
    ) -> None:
        """Compute everything on the host: sums over rows need all rows."""
        indices = np.arange(self._count)
        gradients = self._dx_on_host(dy, saved, dx, indices, dbeta and dbeta.target)
        for values, gradient in zip(gradients, (dgamma, dbeta), strict=True):
            if gradient is not None and values is not None:
                self._runtime.write(round_to(values, gradient.target), gradient.buffer)

    def _dx_on_host(
        self,
        dy: DeviceArray,
        saved: DeviceArray,
        dx: DeviceArray,
        indices: Indices,
        beta_target: FloatFormat | None = None,
    ) -> ColumnGradients:
        """Compute dx of some rows on the host; return dgamma and dbeta of these rows."""
        x = self._rows_of(self._x, indices)
        results = np.empty_like(x)
        dy_rows, x_rows, dx_rows = (
            Rows(each, (1,), self._x.target) for each in (self._rows_of(dy, indices), x, results)
        )
        statistics = self._rows_of(saved, indices)
        gamma = self._parameter(self._gamma, 1.0)
        beta = Parameter(np.zeros(self._size), beta_target)
        with np.errstate(all="ignore"):
            call = Call.of(self._settings, x_rows, gamma, beta)
            saved_by = self._settings.backend
            rows = driver.BackwardRows(dy_rows, x_rows, statistics, dx_rows, saved_by)
            columns = driver.backward(self._host, call, rows)
        self._write_rows(results, dx, indices)
        return columns

    def _undecided_rows(self, tier2: Callable[[Indices], Buffer], status: Array) -> Indices:
        """Compute undecided rows in tier 2; return those that remain undecided."""
        indices = np.flatnonzero(status == UNDECIDED)
        if not len(indices):
            return indices
        undecided = self._downloaded(tier2(indices), (len(indices), self._size), np.bool_)
        return indices[undecided.any(axis=1)]

    def _undecided_columns(self, flags: list[Buffer]) -> Indices:
        """Return the columns that are undecided in dgamma or dbeta."""
        undecided = np.zeros(self._size, np.bool_)
        for each in flags:
            undecided |= self._downloaded(each, (self._size,), np.bool_)
        return np.flatnonzero(undecided)

    def _on_device(self, name: str, array: Any) -> DeviceArray:
        check_negative_bit(name, array)
        return self._library.on_device(name, array)

    def _parameter_on_device(self, name: str, array: Any) -> DeviceArray | None:
        if array is None:
            return None
        parameter = self._on_device(name, array)
        if parameter.shape != (self._size,):
            raise ValueError(f"{name} must have shape ({self._size},), got {parameter.shape}")
        return parameter

    def _as_float32(self, parameter: DeviceArray | None, default: float) -> Buffer:
        """Return a parameter as the kernels take it."""
        if parameter is None:
            return self._runtime.filled(self._size, default)
        if parameter.target is FLOAT32:
            return parameter.buffer
        return widened(self._runtime, parameter.buffer, self._size, parameter.target)

    def _parameter(self, parameter: DeviceArray | None, default: float) -> Parameter:
        """Return a parameter as the driver takes it."""
        if parameter is None:
            return Parameter(np.full(self._size, default), None)
        stored = canonical_nan(parameter.target).dtype
        values = self._downloaded(parameter.buffer, (self._size,), stored)
        return Parameter(widen(values, parameter.target), parameter.target)

    def _downloaded(self, buffer: Buffer, shape: tuple[int, ...], dtype: Any) -> Array:
        array = np.empty(shape, dtype)
        self._runtime.download(buffer, array)
        return array

    def _rows_of(self, array: DeviceArray, indices: Indices) -> Array:
        """Return copies of some rows."""
        rows = np.empty((len(indices), array.shape[-1]), canonical_nan(array.target).dtype)
        for start, stop in _consecutive(indices):
            offset = int(indices[start]) * rows.strides[0]
            self._runtime.download(array.buffer, rows[start:stop], offset)
        return rows

    def _write_rows(self, rows: Array, array: DeviceArray, indices: Indices) -> None:
        for start, stop in _consecutive(indices):
            offset = int(indices[start]) * rows.strides[0]
            self._runtime.write(rows[start:stop], array.buffer, offset)


def _consecutive(indices: Indices) -> list[tuple[int, int]]:
    """Return the ranges in which rows follow each other, so that each is copied at once."""
    if not len(indices):
        return []
    ends = (np.flatnonzero(np.diff(indices) != 1) + 1).tolist()
    return list(zip([0, *ends], [*ends, len(indices)], strict=True))
