"""Forward and backward of rows on a device.

In fast mode nothing waits for the device. In correct mode one thing does: what became of each row
is read. Rows that were refused are done in pairs, on the device again; the few elements that those
refuse, and whatever is not finite, are done by NumPy, and written back.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import Library, OnDevice
from truenorm.exact import FLOAT32, FLOAT64, FloatFormat
from truenorm.kernels import driver as drive_backward
from truenorm.kernels import driver as drive_forward
from truenorm.kernels.call import Call, Parameter, Settings
from truenorm.kernels.gpu.plan import LONGEST
from truenorm.kernels.gpu.runtime import Launcher, Runtime, widened
from truenorm.kernels.protocol import Backend, ColumnGradients
from truenorm.kernels.rounding import canonical_nan, round_to
from truenorm.kernels.rows import Rows, widen
from truenorm.kernels.tuning import OK, UNDECIDED

Array = NDArray[Any]
Indices = NDArray[np.intp]


class DeviceCall:
    """A call whose rows are on a device."""

    def __init__(
        self,
        runtime: Runtime,
        host: Backend,
        settings: Settings,
        x: OnDevice,
        gamma: OnDevice | None,
        beta: OnDevice | None,
    ) -> None:
        self._runtime, self._host = runtime, host
        self._settings, self._x, self._gamma, self._beta = settings, x, gamma, beta
        self._size = x.shape[-1]
        self._count = math.prod(x.shape[:-1])
        self._correct = settings.rounding == "correct"
        nothing = np.empty(0)
        call = Call(
            norm=settings.norm,
            eps=settings.eps,
            arithmetic="tier1" if self._correct else "fast32",
            count=self._count,
            size=self._size,
            x_format=x.target,
            gamma=nothing,
            beta=nothing,
            gamma_format=gamma and gamma.target,
            beta_format=beta and beta.target,
            threads=None,
        )
        self._launcher = Launcher(
            self._runtime,
            call,
            self._as_float32(gamma, 1.0),
            self._as_float32(beta, 0.0),
            alone=not self._correct,
        )

    def _as_float32(self, parameter: OnDevice | None, default: float) -> Any:
        """Return a parameter as kernels take it."""
        if parameter is None:
            return self._runtime.filled(self._size, default)
        if parameter.target is FLOAT32:
            return parameter.buffer
        return widened(self._runtime, parameter.buffer, self._size, parameter.target)

    def forward(self, y: OnDevice, kept: OnDevice) -> None:
        """Write y, and what is kept of each row."""
        became = self._launcher.forward(self._x.buffer, y.buffer, kept.buffer, self._count)
        if not self._correct:
            return
        states = self._downloaded(became, (self._count,), np.uint8)
        if not states.any():
            return
        if not self._parameters_are_finite():
            self._forward_by_host(y, np.arange(self._count))
            return
        again = partial(self._launcher.forward_again, self._x.buffer, y.buffer)
        others = np.flatnonzero((states != OK) & (states != UNDECIDED))
        left = np.concatenate([self._still_refused(again, states), others])
        if len(left):
            self._forward_by_host(y, left)

    def _forward_by_host(self, y: OnDevice, which: Indices) -> None:
        """Write y of some rows by NumPy."""
        x = self._rows_of(self._x, which)
        found = np.empty_like(x)
        rows = [Rows(each, (1,), self._x.target) for each in (x, found)]
        with np.errstate(all="ignore"):
            drive_forward.forward(
                self._host, self._settings, rows[0], *self._parameters(), rows[1]
            )
        self._write_rows(found, y, which)

    def backward(
        self,
        dy: OnDevice,
        kept: OnDevice,
        dx: OnDevice,
        dgamma: OnDevice | None,
        dbeta: OnDevice | None,
    ) -> None:
        """Write dx, dgamma and dbeta."""
        launcher, sums = self._launcher, self._launcher.sums()
        became = launcher.backward(
            dy.buffer, self._x.buffer, kept.buffer, dx.buffer, sums, self._count
        )
        gradients = [
            (kernel, gradient)
            for kernel, gradient in (("finish_gamma", dgamma), ("finish_beta", dbeta))
            if gradient is not None
        ]
        flags = self._round(sums, gradients)
        if not self._correct:
            return
        states = self._downloaded(became, (self._count,), np.uint8)
        undecided = self._undecided(flags)
        others = ((states != OK) & (states != UNDECIDED)).any()  # as if gamma is not finite
        if len(undecided) and not others:
            launcher.columns_again(dy.buffer, self._x.buffer, sums, undecided, self._count)
            undecided = self._undecided(self._round(sums, gradients))
        if len(undecided) or others:
            self._backward_by_host(dy, kept, dx, dgamma, dbeta)
            return
        again = partial(launcher.backward_again, dy.buffer, self._x.buffer, dx.buffer)
        left = self._still_refused(again, states)
        if len(left):
            self._dx_by_host(dy, kept, dx, left)

    def _round(self, sums: Any, gradients: list[tuple[str, OnDevice]]) -> list[Any]:
        """Have dgamma and dbeta written; return which columns are refused, for each."""
        return [
            self._launcher.rounded(sums, kernel, gradient.target, gradient.buffer)
            for kernel, gradient in gradients
        ]

    def _undecided(self, flags: list[Any]) -> Indices:
        """Return the columns that are refused in one of them."""
        refused = np.zeros(self._size, np.bool_)
        for each in flags:
            refused |= self._downloaded(each, (self._size,), np.bool_)
        return np.flatnonzero(refused)

    def _backward_by_host(
        self,
        dy: OnDevice,
        kept: OnDevice,
        dx: OnDevice,
        dgamma: OnDevice | None,
        dbeta: OnDevice | None,
    ) -> None:
        """Write all of it by NumPy: sums over rows need all of them."""
        which, of_beta = np.arange(self._count), dbeta and dbeta.target
        found = self._dx_by_host(dy, kept, dx, which, of_beta)
        for values, gradient in zip(found, (dgamma, dbeta), strict=True):
            if gradient is not None and values is not None:
                self._runtime.write(round_to(values, gradient.target), gradient.buffer)

    def _dx_by_host(
        self,
        dy: OnDevice,
        kept: OnDevice,
        dx: OnDevice,
        which: Indices,
        of_beta: FloatFormat | None = None,
    ) -> ColumnGradients:
        """Write dx of some rows by NumPy; return dgamma and dbeta of these rows."""
        slopes, x = self._rows_of(dy, which), self._rows_of(self._x, which)
        found = np.empty_like(x)
        rows = [Rows(each, (1,), self._x.target) for each in (slopes, x, found)]
        numbers = self._rows_of(kept, which)
        gamma, beta = self._parameter(self._gamma, 1.0), Parameter(np.zeros(self._size), of_beta)
        with np.errstate(all="ignore"):
            columns = drive_backward.backward(
                *(self._host, self._settings, rows[0], rows[1], numbers),
                *(gamma, beta, rows[2]),
            )
        self._write_rows(found, dx, which)
        return columns

    def _downloaded(self, buffer: Any, shape: tuple[int, ...], dtype: Any) -> Array:
        found = np.empty(shape, dtype)
        self._runtime.download(buffer, found)
        return found

    def _still_refused(self, again: Callable[[Indices], Any], states: Array) -> Indices:
        """Have refused rows done again in pairs; return those with elements that pairs refuse."""
        which = np.flatnonzero(states == UNDECIDED)
        if not len(which):
            return which
        refused = self._downloaded(again(which), (len(which), self._size), np.bool_)
        return which[refused.any(axis=1)]

    def _parameters(self) -> tuple[Parameter, Parameter]:
        """Return gamma and beta as the driver takes them."""
        return self._parameter(self._gamma, 1.0), self._parameter(self._beta, 0.0)

    def _parameter(self, parameter: OnDevice | None, default: float) -> Parameter:
        if parameter is None:
            return Parameter(np.full(self._size, default), None)
        stored = canonical_nan(parameter.target).dtype
        values = self._downloaded(parameter.buffer, (self._size,), stored)
        return Parameter(widen(values, parameter.target), parameter.target)

    def _parameters_are_finite(self) -> bool:
        return all(bool(np.isfinite(each.values).all()) for each in self._parameters())

    def _rows_of(self, given: OnDevice, which: Indices) -> Array:
        """Return copies of some rows."""
        rows = np.empty((len(which), given.shape[-1]), canonical_nan(given.target).dtype)
        for start, stop in _stretches(which):
            place = int(which[start]) * rows.strides[0]
            self._runtime.download(given.buffer, rows[start:stop], place)
        return rows

    def _write_rows(self, rows: Array, to: OnDevice, which: Indices) -> None:
        for start, stop in _stretches(which):
            place = int(which[start]) * rows.strides[0]
            self._runtime.write(rows[start:stop], to.buffer, place)


def _stretches(which: Indices) -> list[tuple[int, int]]:
    """Return from where to where rows follow each other, so that they are copied at once."""
    if not len(which):
        return []
    ends = np.flatnonzero(np.diff(which) != 1) + 1
    return list(zip([0, *ends.tolist()], [*ends.tolist(), len(which)], strict=True))


def forward(
    library: Library,
    host: Backend,
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    out: Any,
) -> tuple[Any, Any, FloatFormat | None]:
    """Return y, the saved statistics of each row, and the type of beta.

    Rows run along the last axis of x and have elements; gamma and beta are on the device or NumPy
    arrays of native byte order.
    """
    _check_out(out)
    rows = library.on_device("x", x)
    if rows.shape[-1] > LONGEST:
        raise ValueError(
            f"the last axis of x must have at most {LONGEST} elements on a device, got "
            f"{rows.shape[-1]}: move x to the CPU"
        )
    of_gamma = _parameter(library, "gamma", gamma, rows)
    of_beta = _parameter(library, "beta", beta, rows)
    y = library.empty(rows.shape, rows.target)
    kept = library.empty((math.prod(rows.shape[:-1]), settings.norm.saved_numbers), FLOAT64)
    call = DeviceCall(library.runtime, host, settings, rows, of_gamma, of_beta)
    call.forward(y, kept)
    return library.handed_over(y), library.kept(kept), of_beta and of_beta.target


def _parameter(library: Library, name: str, given: Any, x: OnDevice) -> OnDevice | None:
    """Return gamma or beta on the device."""
    if given is None:
        return None
    found = library.on_device(name, given)
    if found.shape != x.shape[-1:]:
        raise ValueError(f"{name} has shape {found.shape}, and a row of x {x.shape[-1:]}")
    return found


def backward(
    library: Library,
    host: Backend,
    settings: Settings,
    dy: Any,
    x: Any,
    gamma: Any,
    beta_target: FloatFormat | None,
    kept: Any,
    out: Any,
) -> tuple[Any, Any, Any]:
    """Return dx, dgamma and dbeta; None of what there is no parameter."""
    _check_out(out)
    slopes, rows = library.on_device("dy", dy), library.on_device("x", x)
    if slopes.shape != rows.shape or slopes.target is not rows.target:
        raise ValueError(
            f"dy has shape {slopes.shape} and type {slopes.target.name} but y has shape "
            f"{rows.shape} and type {rows.target.name}"
        )
    of_gamma = _parameter(library, "gamma", gamma, rows)
    dx = library.empty(rows.shape, rows.target)
    dgamma, dbeta = (
        None if target is None else library.empty(rows.shape[-1:], target)
        for target in (of_gamma and of_gamma.target, beta_target)
    )
    call = DeviceCall(library.runtime, host, settings, rows, of_gamma, None)
    call.backward(slopes, library.again(kept), dx, dgamma, dbeta)
    return (
        library.handed_over(dx),
        dgamma and library.handed_over(dgamma),
        dbeta and library.handed_over(dbeta),
    )


def _check_out(out: Any) -> None:
    if out is not None:
        raise ValueError("out is for arrays of NumPy: on a device, leave it out")
