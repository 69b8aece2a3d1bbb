"""The backend "gpu": blocks of NumPy rows are computed on a device.

The sums over rows stay on the device until backward is done with all rows.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.fixed_point import FixedPointSum
from truenorm.kernels.gpu.plan import LONG_RUN, LONGEST
from truenorm.kernels.gpu.runtime import Buffer, Launcher, Runtime
from truenorm.kernels.protocol import Backend, Backward, FixedPointDgamma, Forward, RowStatus
from truenorm.kernels.rounding import Tested, round_pair, round_to, same_roundings
from truenorm.kernels.rows import Range, Stored
from truenorm.kernels.tuning import SLACK, SUMS, U

Float64 = NDArray[np.float64]

ELEMENTS = 2**24
"""Elements of a block: those that are on the device at the same time."""

ROWS = LONG_RUN
"""The rows of a block are a multiple of this, so the sums of runs do not depend on blocks."""


class GpuBackend:
    """A device, with a backend on the host as its fallback."""

    name = "gpu"

    def __init__(self, runtime: Runtime, host: Backend) -> None:
        self._runtime, self._host = runtime, host

    def forward(self, call: Call) -> Forward:
        """Return forward for a call."""
        check(call)
        return DeviceForward(self._runtime, call)

    def backward(self, call: Call) -> Backward[Any]:
        """Return backward for a call."""
        check(call)
        return DeviceBackward(self._runtime, call, self._host.backward(call))

    def fixed_point_dgamma(self, call: Call) -> FixedPointDgamma[Any]:
        """Return the fixed-point sum of dgamma, which the host computes."""
        return self._host.fixed_point_dgamma(call)


def check(call: Call) -> None:
    """Raise if a call has float64 numbers, or rows that are too long."""
    if call.size > LONGEST:
        raise ValueError(
            f"rows must have at most {LONGEST} elements for the backend 'gpu', got {call.size}: "
            "choose another backend"
        )
    if call.arithmetic in ("tier2", "fast64"):
        raise ValueError(
            "the backend 'gpu' takes float16, bfloat16 and float32, not float64, which would need "
            "double-double kernels: choose another backend"
        )


class _Pass:
    """The launcher of a call, and the blocks that its rows are computed in."""

    threads = 1

    def __init__(self, runtime: Runtime, call: Call) -> None:
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, ELEMENTS // call.size // ROWS) * ROWS
        self._runtime, self._size = runtime, call.size
        self._is_correct = call.arithmetic == "tier1"
        gamma, beta = (
            runtime.upload(each.finite.astype(np.float32)) for each in (call.gamma, call.beta)
        )
        self._launcher = Launcher(runtime, call, gamma, beta)

    def _download_tier2(self, output: Buffer, flags: Buffer, into: Stored) -> Flags:
        """Copy recomputed rows from the device; return the undecided elements."""
        undecided = np.empty(into.shape, np.bool_)
        self._runtime.download(output, into)
        self._runtime.download(flags, undecided)
        return undecided


class DeviceForward(_Pass):
    """Forward: tier 1, and tier 2 for undecided rows."""

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Compute y, the saved statistics and the row status; return True if any is not OK."""
        output, statistics = map(self._runtime.empty, (y.nbytes, saved.nbytes))
        row_status = self._launcher.forward(self._runtime.upload(x), output, statistics, len(x))
        for buffer, into in ((output, y), (statistics, saved), (row_status, status)):
            self._runtime.download(buffer, into)
        return bool(status.any())

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Compute y in double-double; return the elements that remain undecided."""
        output = self._runtime.empty(y.nbytes)
        flags = self._launcher.forward_tier2(self._runtime.upload(x), output, np.arange(len(y)))
        return self._download_tier2(output, flags, y)


class DeviceBackward(_Pass):
    """Backward: tier 1, and tier 2 for undecided rows; the host sums undecided columns."""

    def __init__(self, runtime: Runtime, call: Call, host: Backward[Any]) -> None:
        super().__init__(runtime, call)
        self.tier2_dgamma, self.exact_dbeta = host.tier2_dgamma, host.exact_dbeta

    def sums(self) -> "DeviceSums":
        """Return zeroed accumulators."""
        buffer = self._launcher.sums()
        return DeviceSums(self._runtime, buffer, self._size, has_bounds=self._is_correct)

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Recompute the saved statistics; return True if a row mean changed."""
        statistics = np.empty_like(saved)
        unused, buffer = map(self._runtime.empty, (x.nbytes, saved.nbytes))
        self._launcher.forward(self._runtime.upload(x), unused, buffer, len(x))
        self._runtime.download(buffer, statistics)
        changed = _has_changed(statistics, saved)
        saved[...] = statistics
        return changed

    def compute(
        self,
        dy: Stored,
        x: Stored,
        saved: Float64,
        dx: Stored,
        sums: "DeviceSums",
        status: RowStatus,
    ) -> bool:
        """Compute dx and the row status, and add to the sums; return True if any is not OK."""
        output = self._runtime.empty(dx.nbytes)
        upload = self._runtime.upload
        row_status = self._launcher.backward(
            upload(dy), upload(x), upload(saved), output, sums.buffer, len(x)
        )
        self._runtime.download(output, dx)
        self._runtime.download(row_status, status)
        return bool(status.any())

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Compute dx in double-double; return the elements that remain undecided."""
        output = self._runtime.empty(dx.nbytes)
        upload = self._runtime.upload
        flags = self._launcher.backward_tier2(upload(dy), upload(x), output, np.arange(len(dx)))
        return self._download_tier2(output, flags, dx)


def _has_changed(statistics: Float64, saved: Float64) -> bool:
    """Return True if a mean, or mean square, differs by more than rounding errors."""
    if saved.shape[1] == 1:
        difference, tolerance = statistics - saved, 2.0**-40 * np.abs(statistics)
    else:
        near, low, variance = (statistics[:, k : k + 1] for k in range(3))
        difference = (near - saved[:, :1]) + (low - saved[:, 1:2])
        spread = np.sqrt(np.abs(variance)) + np.abs(low)
        tolerance = 2.0**-40 * spread + 2.0**-50 * np.abs(near)
    both_nan = np.isnan(statistics[:, :1]) & np.isnan(saved[:, :1])
    return not bool(((np.abs(difference) <= tolerance) | both_nan).all())


class DeviceSums:
    """Sums over rows: dgamma as pairs with a bound, dbeta as exact pairs (`kernels.tuning`)."""

    def __init__(self, runtime: Runtime, buffer: Buffer, size: int, *, has_bounds: bool) -> None:
        self._runtime, self._size = runtime, size
        self.buffer, self.has_bounds = buffer, has_bounds

    def merge(self, _other: "DeviceSums") -> None:
        """Raise: the rows have one part, whose sums are never merged."""
        raise NotImplementedError

    @cached_property
    def _numbers(self) -> Float64:
        """All sums, when all rows are done."""
        numbers = np.empty((SUMS, self._size))
        self._runtime.download(self.buffer, numbers)
        return numbers

    def dgamma(self, target: FloatFormat) -> Tested:
        """Round the sums whose bound allows it."""
        high, low, bound, *_ = self._numbers
        z = (high + low) + 0.0
        bound = SLACK * (bound + 2 * U * np.abs(z)) if self.has_bounds else 0.0
        return same_roundings(round_to(z - bound, target), round_to(z + bound, target))

    def dbeta(self, target: FloatFormat) -> Tested:
        """Round the sums that are exact; the device marks the others with NaN."""
        *_, high, low = self._numbers
        undecided = np.isnan(low) | np.isnan(high)
        pair = two_sum(np.where(undecided, 0.0, high), np.where(undecided, 0.0, low))
        return Tested(round_pair(*pair, np.zeros(len(high), np.int64), target), undecided)

    def fixed_point_dbeta(self) -> FixedPointSum | None:
        """Return the sum of dy, or None if it is not exact."""
        pairs = self._numbers[3:]
        if np.isnan(pairs).any():
            return None
        total = FixedPointSum(pairs.shape[1])
        total.add(pairs.copy())
        return total
