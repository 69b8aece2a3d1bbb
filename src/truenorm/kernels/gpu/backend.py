"""Sums over rows, which are on the device while backward sweeps."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.fixed_point import FixedPointDgamma, FixedPointSum
from truenorm.kernels.gpu.plan import LONG_RUN, LONGEST
from truenorm.kernels.gpu.runtime import Buffer, Launcher, Runtime
from truenorm.kernels.protocol import Backend, Backward, Forward, RowStatus
from truenorm.kernels.rounding import Tested, round_pair, round_to, same_roundings
from truenorm.kernels.rows import Range, Stored
from truenorm.kernels.tuning import SLACK, SUMS, U

Float64 = NDArray[np.float64]


class Sums:
    """dgamma as pairs with a bound, and dbeta as exact pairs, SIZE of each: see `kernels.tuning`.

    There is one part of the rows, so that no two of these are ever merged.
    """

    def __init__(self, runtime: Runtime, buffer: Buffer, size: int, *, has_bounds: bool) -> None:
        self._runtime, self._size = runtime, size
        self.buffer, self.has_bounds = buffer, has_bounds

    def merge(self, _other: "Sums") -> None:
        """Is not called."""
        raise NotImplementedError

    @cached_property
    def numbers(self) -> Float64:
        """All of them, when all rows are done."""
        found = np.empty((SUMS, self._size))
        self._runtime.download(self.buffer, found)
        return found

    @property
    def dgamma(self) -> "BoundedSum":
        """Of dy*xhat."""
        return BoundedSum(self)

    @property
    def dbeta(self) -> "ExactSum":
        """Of dy."""
        return ExactSum(self)


class BoundedSum:
    """dgamma."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self.merge = sums.merge

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        high, low, bound, *_ = self._sums.numbers
        z = (high + low) + 0.0
        bound = SLACK * (bound + 2 * U * np.abs(z)) if self._sums.has_bounds else 0.0
        return same_roundings(round_to(z - bound, target), round_to(z + bound, target))


class ExactSum:
    """dbeta."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self.merge = sums.merge

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are exact."""
        *_, high, low = self._sums.numbers
        undecided = np.isnan(low) | np.isnan(high)
        pair = two_sum(np.where(undecided, 0.0, high), np.where(undecided, 0.0, low))
        return Tested(round_pair(*pair, np.zeros(len(high), np.int64), target), undecided)

    def as_fixed_point(self) -> FixedPointSum | None:
        """Return the sums if all are exact."""
        pairs = self._sums.numbers[3:]
        if np.isnan(pairs).any():
            return None
        found = FixedPointSum(pairs.shape[1])
        found.add(pairs.copy())
        return found


ELEMENTS = 2**24
"""Of a block: what is on the device at the same time."""

ROWS = LONG_RUN
"""Rows of a block are a multiple of this, and so of a run: shares do not depend on blocks."""


class _Level:
    """What both passes have in common."""

    threads = 1

    def __init__(self, runtime: Runtime, call: Call) -> None:
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, ELEMENTS // call.size // ROWS) * ROWS
        self._runtime, self._size = runtime, call.size
        self._is_correct = call.arithmetic == "tier1"
        parameters = (runtime.upload(each.astype(np.float32)) for each in (call.gamma, call.beta))
        self._launcher = Launcher(runtime, call, *parameters)

    def _refused(self, flags: Buffer, results: Stored) -> Flags:
        """Return which elements of results are undecided."""
        undecided = np.empty(results.shape, np.bool_)
        self._runtime.download(flags, undecided)
        return undecided


class DeviceForward(_Level):
    """Level 1, and pairs for what that refuses."""

    def compute(self, x: Stored, y: Stored, saved: Float64, status: RowStatus) -> bool:
        """Write y, what is saved and what became of each row; return whether some are not done."""
        on_device, statistics = map(self._runtime.empty, (y.nbytes, saved.nbytes))
        became = self._launcher.forward(self._runtime.upload(x), on_device, statistics, len(x))
        for buffer, into in ((on_device, y), (statistics, saved), (became, status)):
            self._runtime.download(buffer, into)
        return bool(status.any())

    def recompute(self, x: Stored, _saved: Float64, y: Stored) -> Flags:
        """Do y of rows that were undecided in pairs; return which elements still are."""
        on_device = self._runtime.empty(y.nbytes)
        which = np.arange(len(y))
        flags = self._launcher.forward_again(self._runtime.upload(x), on_device, which)
        self._runtime.download(on_device, y)
        return self._refused(flags, y)


class DeviceBackward(_Level):
    """The same of backward; columns that it does not know well enough are for a host."""

    def __init__(self, runtime: Runtime, call: Call, host: Backward[Any]) -> None:
        super().__init__(runtime, call)
        self.tier2_dgamma, self.exact_dbeta = host.tier2_dgamma, host.exact_dbeta

    def sums(self) -> Sums:
        """Return sums over no rows."""
        buffer = self._launcher.sums()
        return Sums(self._runtime, buffer, self._size, has_bounds=self._is_correct)

    def recompute_saved(self, x: Stored, saved: Float64) -> bool:
        """Find anew what forward keeps; return whether a row does not have the mean it had."""
        found = np.empty_like(saved)
        unused, statistics = map(self._runtime.empty, (x.nbytes, saved.nbytes))
        self._launcher.forward(self._runtime.upload(x), unused, statistics, len(x))
        self._runtime.download(statistics, found)
        changed = _moved(found, saved)
        saved[...] = found
        return changed

    def compute(
        self, dy: Stored, x: Stored, saved: Float64, dx: Stored, sums: Sums, status: RowStatus
    ) -> bool:
        """Write dx and what became of rows, and add to the sums; return whether some are left."""
        on_device = self._runtime.empty(dx.nbytes)
        slopes, values, statistics = map(self._runtime.upload, (dy, x, saved))
        became = self._launcher.backward(
            slopes, values, statistics, on_device, sums.buffer, len(x)
        )
        self._runtime.download(on_device, dx)
        self._runtime.download(became, status)
        return bool(status.any())

    def recompute(self, dy: Stored, x: Stored, dx: Stored) -> Flags:
        """Do dx of rows that were undecided in pairs; return which elements still are."""
        on_device = self._runtime.empty(dx.nbytes)
        slopes, values = map(self._runtime.upload, (dy, x))
        which = np.arange(len(dx))
        flags = self._launcher.backward_again(slopes, values, on_device, which)
        self._runtime.download(on_device, dx)
        return self._refused(flags, dx)


def _moved(found: Float64, saved: Float64) -> bool:
    """Tell whether a row has another mean, or mean square, than rounding explains."""
    if saved.shape[1] == 1:
        apart, allowed = found - saved, 2.0**-40 * np.abs(found)
    else:
        apart = (found[:, :1] - saved[:, :1]) + (found[:, 1:2] - saved[:, 1:2])
        spread = np.sqrt(np.abs(found[:, 2:])) + np.abs(found[:, 1:2])
        allowed = 2.0**-40 * spread + 2.0**-50 * np.abs(found[:, :1])
    same = (np.abs(apart) <= allowed) | (np.isnan(found[:, :1]) & np.isnan(saved[:, :1]))
    return not bool(same.all())


class GpuBackend:
    """A device, and for what it refuses another backend on the host."""

    name = "gpu"
    core = None

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
        """Return how dgamma of a call at level 1 is summed on the lattice."""
        return self._host.fixed_point_dgamma(call)


def check(call: Call) -> None:
    """Raise if a call has float64 numbers, or rows that are too long."""
    if call.size > LONGEST:
        raise ValueError(
            f"rows have {call.size} elements: the backend 'gpu' takes at most {LONGEST}"
        )
    if call.arithmetic in ("tier2", "fast64"):
        raise ValueError(
            "the backend 'gpu' takes float16, bfloat16 and float32, not float64: to be right, "
            "float64 needs pairs of them, which no kernel has; choose another backend"
        )
