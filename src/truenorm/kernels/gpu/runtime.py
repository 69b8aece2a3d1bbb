"""Memory of a device, arrays in that memory, and the launches of a call."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FLOAT64, FloatFormat
from truenorm.kernels.call import Call
from truenorm.kernels.gpu.plan import Plan
from truenorm.kernels.rows import format_of
from truenorm.kernels.tuning import SUMS

Array = NDArray[Any]
Indices = NDArray[np.intp]
Buffer = Any
"""Memory of a device, as the interface represents it."""

ROW_NUMBERS = 9
"""Float64 numbers that `rows_tier2` writes for each row: see columns_tier2.c."""


class Runtime(ABC):
    """Memory and kernel launches of one device, executed in order.

    Only copies from and to NumPy arrays wait for the device.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the device."""

    @abstractmethod
    def empty(self, nbytes: int) -> Buffer:
        """Allocate a buffer."""

    @abstractmethod
    def fill(self, buffer: Buffer, value: np.generic, nbytes: int) -> None:
        """Fill a buffer with copies of a number."""

    @abstractmethod
    def download(self, buffer: Buffer, into: Array, start: int = 0) -> None:
        """Copy from byte `start` of a buffer, after all launches so far."""

    @abstractmethod
    def write(self, array: Array, buffer: Buffer, start: int = 0) -> None:
        """Copy to byte `start` of a buffer."""

    @abstractmethod
    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Launch a kernel with the threads of its plan; numbers are NumPy scalars."""

    def upload(self, array: Array) -> Buffer:
        """Return a copy of an array on the device."""
        buffer = self.empty(array.nbytes)
        self.write(array, buffer)
        return buffer

    def zeros(self, nbytes: int) -> Buffer:
        """Allocate a buffer of zeros."""
        buffer = self.empty(nbytes)
        self.fill(buffer, np.uint8(0), max(nbytes, 1))
        return buffer

    def filled(self, count: int, value: float) -> Buffer:
        """Allocate a buffer of float32 copies of a number."""
        buffer = self.empty(4 * count)
        self.fill(buffer, np.float32(value), 4 * count)
        return buffer


class DeviceArray(NamedTuple):
    """A C-contiguous array in the memory of a device."""

    array: Any
    """The array of the caller's library; for new CUDA memory, the stream that fills it."""
    buffer: Buffer
    shape: tuple[int, ...]
    target: FloatFormat

    @property
    def nbytes(self) -> int:
        """The size of all elements."""
        return math.prod(self.shape) * dtype_of(self.target).itemsize


class Library(Protocol):
    """The array library of the caller, on one device and stream."""

    @property
    def runtime(self) -> Runtime:
        """The device and stream that kernels are launched on."""

    def on_device(self, name: str, array: Any) -> DeviceArray:
        """Return the memory of an array, or a copy of a NumPy array; raise if unsupported."""

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> DeviceArray:
        """Allocate an array."""

    def mark_written(self, array: DeviceArray) -> DeviceArray:
        """Return an array that this call writes, so that a later call can wait for it."""

    def wait_for(self, array: DeviceArray) -> DeviceArray:
        """Return an array that an earlier call wrote; launches from now on wait for that."""

    def export(self, array: DeviceArray) -> Any:
        """Return an array of the caller's library, whose users wait for this call."""


def checked_target(name: str, dtype: Any) -> FloatFormat:
    """Return the format of a dtype; raise unless the kernels support it."""
    if dtype is not None and not np.dtype(dtype).isnative:
        raise TypeError(
            f"{name} must be of native byte order on a device, got {dtype}: convert it before it "
            "is copied there"
        )
    target = None if dtype is None else format_of(np.dtype(dtype))
    if target is None or target is FLOAT64:
        raise TypeError(
            f"{name} must be float16, bfloat16 or float32 on a device, got {dtype}: move it to "
            "the CPU"
        )
    return target


def dtype_of(target: FloatFormat) -> np.dtype[Any]:
    """Return the dtype of a format."""
    if target is not BFLOAT16:
        return np.dtype(target.name)
    import ml_dtypes  # installed: NumPy has no other bfloat16 that a caller could pass

    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


class Launcher:
    """Launch the kernels of one call; its parameters are float32 buffers on the device.

    With `standalone`, nothing reads the row status: kernels write the NaN of special rows.
    """

    def __init__(
        self,
        runtime: Runtime,
        call: Call,
        gamma: Buffer,
        beta: Buffer,
        *,
        standalone: bool = False,
    ) -> None:
        self.runtime = runtime
        self._call, self._gamma, self._beta, self._standalone = call, gamma, beta, standalone
        self._eps = np.float64(call.eps)

    def forward(self, x: Buffer, y: Buffer, saved: Buffer, count: int) -> Buffer:
        """Compute y and the saved statistics of rows; return the row status."""
        plan, status = self._plan("forward"), self.runtime.zeros(count)
        self.runtime.launch(
            *("forward", plan, plan.blocks(count), x, self._gamma, self._beta, self._eps),
            *(y, saved, status, np.int64(count)),
        )
        return status

    def forward_tier2(self, x: Buffer, y: Buffer, rows: Indices) -> Buffer:
        """Compute y of some rows in double-double; return flags of undecided elements."""
        return self._tier2("forward_tier2", (x, self._gamma, self._beta), y, rows)

    def sums(self) -> Buffer:
        """Return zeroed accumulators: see `kernels.tuning`."""
        return self.runtime.zeros(SUMS * self._call.size * 8)

    def backward(
        self, dy: Buffer, x: Buffer, saved: Buffer, dx: Buffer, sums: Buffer, count: int
    ) -> Buffer:
        """Compute dx of rows and add to the sums over rows; return the row status."""
        runtime, size = self.runtime, self._call.size
        plan, rows, status = self._plan("backward"), np.int64(count), self.runtime.zeros(count)
        runs = plan.runs(count)
        run_sums, bounds = runtime.empty(runs * size * 16), runtime.empty(runs * size * 4)
        numbers = runtime.empty(0 if plan.sums_in_registers else count * 24)
        runtime.launch(
            *("backward", plan, plan.blocks(runs), dy, x, self._gamma, saved, self._eps),
            *(dx, run_sums, bounds, numbers, status, rows),
        )
        if not plan.sums_in_registers:
            runtime.launch(
                *("run_sums", plan, runs * plan.strips, dy, x, saved, numbers),
                *(run_sums, bounds, rows),
            )
        runtime.launch("column_sums", plan, plan.strips, run_sums, bounds, sums, np.int64(runs))
        return status

    def backward_tier2(self, dy: Buffer, x: Buffer, dx: Buffer, rows: Indices) -> Buffer:
        """Compute dx of some rows in double-double; return flags of undecided elements."""
        return self._tier2("backward_tier2", (dy, x, self._gamma), dx, rows)

    def columns_tier2(
        self, dy: Buffer, x: Buffer, sums: Buffer, columns: Indices, count: int
    ) -> None:
        """Replace the sums of some columns over all rows by those in double-double."""
        plan, rows = self._plan("rows_tier2"), np.int64(count)
        numbers = self.runtime.empty(count * ROW_NUMBERS * 8)
        self.runtime.launch("rows_tier2", plan, plan.blocks(count), x, self._eps, numbers, rows)
        plan, selected = self._plan("columns_tier2"), self.runtime.upload(columns)
        self.runtime.launch(
            *("columns_tier2", plan, plan.blocks(len(columns)), dy, x, numbers, sums, selected),
            *(np.int64(len(columns)), rows),
        )

    def round_sums(self, sums: Buffer, kernel: str, gradient: DeviceArray) -> Buffer:
        """Round dgamma or dbeta to its type; return flags of undecided columns."""
        plan, flags = self._plan(kernel, gradient.target), self.runtime.empty(self._call.size)
        self.runtime.launch(kernel, plan, plan.strips, sums, gradient.buffer, flags)
        return flags

    def _tier2(
        self, kernel: str, inputs: tuple[Buffer, ...], output: Buffer, rows: Indices
    ) -> Buffer:
        plan, count = self._plan(kernel), len(rows)
        flags = self.runtime.empty(count * self._call.size)
        self.runtime.launch(
            *(kernel, plan, plan.blocks(count), *inputs, self._eps, output, flags),
            *(self.runtime.upload(rows), np.int64(count)),
        )
        return flags

    def _plan(self, kernel: str, target: FloatFormat | None = None) -> Plan:
        call = self._call
        return Plan.of(
            kernel,
            call.size,
            target or call.x_format,
            centred=call.norm.centred,
            correct=call.arithmetic == "tier1",
            standalone=self._standalone,
        )


def widened(runtime: Runtime, parameter: Buffer, size: int, target: FloatFormat) -> Buffer:
    """Return a parameter as float32, on the device."""
    plan = Plan.of("widen", size, target, centred=False, correct=False)
    wide = runtime.empty(4 * size)
    runtime.launch("widen", plan, plan.strips, parameter, wide)
    return wide
