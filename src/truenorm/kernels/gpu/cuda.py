"""CUDA: kernels compiled by NVRTC and launched, and arrays of PyTorch, CuPy and JAX.

Never run on a card by its authors. It compiles the source, and passes the arguments, that the
tests run by OpenCL.
"""

import math
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from cuda.core import Buffer, Device, LaunchConfig, Program, ProgramOptions, Stream, launch
from cuda.core.utils import StridedMemoryView
from numpy.typing import NDArray

from truenorm.exact import BFLOAT16, FloatFormat
from truenorm.kernels.gpu.plan import LOAD_BYTES, Plan, source_of
from truenorm.kernels.gpu.runtime import DeviceArray, Runtime, checked_target, dtype_of

Array = NDArray[Any]

LEGACY_DEFAULT, NO_ORDER = 1, -1
"""Stream numbers of DLPack and CUDA."""


@cache
def compiled(kernel: str, plan: Plan, architecture: str) -> Any:
    """Return the object code of a kernel, which can be compiled without a card."""
    options = ProgramOptions(
        arch=architecture,
        fma=False,
        define_macro=[(name, str(value)) for name, value in plan.macros.items()],
    )
    return Program(source_of(kernel), "c++", options).compile("cubin")


class Cuda(Runtime):
    """A card and the stream of the caller."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device, self.stream = device, stream

    @property
    def name(self) -> str:
        """The name of the card."""
        return str(self.device.name)

    def empty(self, nbytes: int) -> Buffer:
        """Allocate a buffer."""
        return self.device.allocate(max(nbytes, 1), stream=self.stream)

    def fill(self, buffer: Buffer, value: np.generic, nbytes: int) -> None:  # noqa: ARG002
        """Fill a buffer with copies of a number."""
        buffer.fill(value.tobytes(), stream=self.stream)

    def download(self, buffer: Buffer, into: Array, start: int = 0) -> None:
        """Copy from byte `start` of a buffer, after all launches so far."""
        if into.size:
            _memory_of(into).copy_from(_part(buffer, start, into.nbytes), stream=self.stream)
        self.stream.sync()

    def write(self, array: Array, buffer: Buffer, start: int = 0) -> None:
        """Copy to byte `start` of a buffer."""
        source = np.ascontiguousarray(array)
        if source.size:
            _part(buffer, start, source.nbytes).copy_from(_memory_of(source), stream=self.stream)
            self.stream.sync()  # the caller may free or change the array after the return

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Launch a kernel with the threads of its plan."""
        if not blocks:
            return
        major, minor = self.device.compute_capability
        code = compiled(kernel, plan, f"sm_{major}{minor}").get_kernel(kernel)
        launch(self.stream, LaunchConfig(grid=blocks, block=plan.threads), code, *arguments)


def _part(buffer: Buffer, start: int, size: int) -> Buffer:
    return Buffer.from_handle(int(buffer.handle) + start, size, owner=buffer)


def _memory_of(array: Array) -> Buffer:
    return Buffer.from_handle(array.ctypes.data, array.nbytes, owner=array)


def stream_of(device: Device, root: str, stream: Any) -> Stream:
    """Return a stream of any library as CUDA's; for None the current one of library `root`."""
    if stream is None and root in ("torch", "cupy"):
        cuda = sys.modules[root].cuda
        stream = cuda.current_stream() if root == "torch" else cuda.get_current_stream()
    if stream is None:
        return device.default_stream
    handle = stream if isinstance(stream, int) else getattr(stream, "cuda_stream", None)
    if handle is None:
        handle = getattr(stream, "ptr", None)
    if handle is None:
        return device.create_stream(stream)
    return Stream.from_handle(handle) if handle else device.default_stream


class Result:
    """Memory exported by DLPack; the consumer's stream waits for the one that fills it."""

    def __init__(self, view: StridedMemoryView, buffer: Buffer, stream: Stream) -> None:
        self._view, self._buffer, self._stream = view, buffer, stream

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the card."""
        device: tuple[int, int] = self._view.__dlpack_device__()
        return device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Return the memory, for use on a stream; it is freed in the order of that stream."""
        if stream != NO_ORDER:
            consumer = Stream.from_handle(stream or LEGACY_DEFAULT)
            consumer.wait(self._stream)
            self._buffer.set_deallocation_stream(consumer)
        return self._view.__dlpack__(**options)


class CudaArrays:
    """Arrays of one library on one card, used on the caller's stream."""

    def __init__(self, like: Any, stream: Any) -> None:
        device = Device(int(like.__dlpack_device__()[1]))
        device.set_current()
        self._root = type(like).__module__.partition(".")[0]
        self.runtime = Cuda(device, stream_of(device, self._root, stream))

    def on_device(self, name: str, array: Any) -> DeviceArray:
        """Return the memory of an array, or a copy of a NumPy array; raise if unsupported."""
        if isinstance(array, np.ndarray):
            copy = self.empty(array.shape, checked_target(name, array.dtype))
            self.runtime.write(array, copy.buffer)
            return copy
        if getattr(array, "requires_grad", False):
            raise ValueError(
                f"{name} requires a gradient, and truenorm records none: pass {name}.detach()"
            )
        view = StridedMemoryView.from_any_interface(array, int(self.runtime.stream.handle))
        if not view.is_device_accessible or view.device_id != self.runtime.device.device_id:
            raise ValueError(f"{name} must be on the card of x: move it there")
        if view.strides is not None and not _is_contiguous(view.shape, view.strides):
            raise ValueError(f"{name} must be C-contiguous on a device: pass a contiguous copy")
        target = checked_target(name, view.dtype)
        itemsize = dtype_of(target).itemsize
        alignment = math.gcd(view.shape[-1] * itemsize, LOAD_BYTES) if view.size else 1
        if view.ptr % alignment:
            raise ValueError(
                f"{name} must start at a multiple of {alignment} bytes on a device: pass a copy"
            )
        memory = Buffer.from_handle(view.ptr, view.size * itemsize, owner=array)
        return DeviceArray(array, memory, tuple(view.shape), target)

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> DeviceArray:
        """Allocate memory, and note the stream that fills it."""
        buffer = self.runtime.empty(math.prod(shape) * dtype_of(target).itemsize)
        return DeviceArray(self.runtime.stream, buffer, shape, target)

    def mark_written(self, array: DeviceArray) -> DeviceArray:
        """Return an array that this call writes: `empty` noted its stream."""
        return array

    def wait_for(self, array: DeviceArray) -> DeviceArray:
        """Return an array that an earlier call wrote, perhaps on another stream."""
        self.runtime.stream.wait(array.array)
        return array

    def export(self, array: DeviceArray) -> Any:
        """Return an array of the caller's library, which waits for the stream."""
        # The exporter has no bfloat16: its bits go as int16 and are viewed as bfloat16 again.
        is_bfloat16 = array.target is BFLOAT16
        dtype = np.dtype(np.int16) if is_bfloat16 else dtype_of(array.target)
        view = StridedMemoryView.from_buffer(array.buffer, array.shape, dtype=dtype)
        result = self._of_library("from_dlpack")(Result(view, array.buffer, array.array))
        return result.view(self._of_library("bfloat16")) if is_bfloat16 else result

    def _of_library(self, name: str) -> Callable[..., Any]:
        """Return a function or type of the caller's library."""
        home = {"from_dlpack": "jax.dlpack", "bfloat16": "jax.numpy"}[name]
        module = sys.modules.get(home if self._root in ("jax", "jaxlib") else self._root)
        attribute: Callable[..., Any] | None = getattr(module, name, None)
        if attribute is None:
            raise TypeError(
                f"x is an array of {self._root} on a card, which has no {name} for the result: "
                "move x to the CPU"
            )
        return attribute


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if an array is C-contiguous; the stride of an axis of length 1 is ignored."""
    if 0 in shape:
        return True
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True
