"""In which order kernels and their caller use the memory of a card."""

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.core import Buffer, Device, Stream
from cuda.core.utils import StridedMemoryView

from truenorm.devices.arrays import OnDevice, check_negative_bit, checked_target, dtype_of
from truenorm.exact import BFLOAT16, FloatFormat
from truenorm.kernels.gpu.cuda import Cuda
from truenorm.kernels.gpu.plan import LOAD_BYTES

LEGACY_DEFAULT, NO_ORDER = 1, -1
"""Streams, as DLPack and CUDA number them."""


def stream_of(device: Device, root: str, given: Any) -> Stream:
    """Return a stream that was given, or else the one that the caller's library uses now."""
    if given is None:
        given = _current(root)
    if given is None:
        return device.default_stream
    handle = given if isinstance(given, int) else getattr(given, "cuda_stream", None)
    if handle is None:
        handle = getattr(given, "ptr", None)
    if handle is None:
        return device.create_stream(given)
    return Stream.from_handle(handle) if handle else device.default_stream


def _current(root: str) -> Any:
    if root == "torch":
        return sys.modules[root].cuda.current_stream()
    if root == "cupy":
        return sys.modules[root].cuda.get_current_stream()
    return None


class Result:
    """Memory handed over by DLPack: whoever takes it waits for the stream that fills it."""

    def __init__(self, view: StridedMemoryView, buffer: Buffer, stream: Stream) -> None:
        self._view, self._buffer, self._stream = view, buffer, stream

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the card."""
        found: tuple[int, int] = self._view.__dlpack_device__()
        return found

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Return the memory, to be used on a stream, and freed in the order of that."""
        if stream != NO_ORDER:
            taker = Stream.from_handle(stream or LEGACY_DEFAULT)
            taker.wait(self._stream)
            self._buffer.set_deallocation_stream(taker)
        return self._view.__dlpack__(**options)


class CudaArrays:
    """Arrays of one library on one card, used on the caller's stream."""

    def __init__(self, like: Any, stream: Any) -> None:
        device = Device(int(like.__dlpack_device__()[1]))
        device.set_current()
        self._root = type(like).__module__.partition(".")[0]
        self.runtime = Cuda(device, stream_of(device, self._root, stream))

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory."""
        if isinstance(array, np.ndarray):
            copy = self.empty(array.shape, checked_target(name, array.dtype))
            self.runtime.write(array, copy.buffer)
            return copy
        check_negative_bit(name, array)
        if getattr(array, "requires_grad", False):
            raise ValueError(f"{name} requires a gradient, which has no way through here: detach")
        view = StridedMemoryView.from_any_interface(array, int(self.runtime.stream.handle))
        if not view.is_device_accessible or view.device_id != self.runtime.device.device_id:
            raise ValueError(f"{name} is not on the card of x: move it there")
        if view.strides is not None and not _is_contiguous(view.shape, view.strides):
            raise ValueError(f"{name} is not C-contiguous: pass a copy of it that is")
        target = checked_target(name, view.dtype)
        itemsize = dtype_of(target).itemsize
        if view.size and view.ptr % math.gcd(view.shape[-1] * itemsize, LOAD_BYTES):
            raise ValueError(
                f"{name} begins at an address from which kernels cannot read: pass a copy"
            )
        memory = Buffer.from_handle(view.ptr, view.size * itemsize, owner=array)
        return OnDevice(array, memory, tuple(view.shape), target)

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return new memory, and the stream that fills it."""
        buffer = self.runtime.empty(math.prod(shape) * dtype_of(target).itemsize)
        return OnDevice(self.runtime.stream, buffer, shape, target)

    def kept(self, made: OnDevice) -> OnDevice:
        """Return memory with the stream that fills it."""
        return made

    def again(self, made: OnDevice) -> OnDevice:
        """Return memory that an earlier call has filled, maybe on another stream."""
        self.runtime.stream.wait(made.array)
        return made

    def handed_over(self, made: OnDevice) -> Any:
        """Return an array of the caller's library, which waits for the stream."""
        # DLPack's exporter knows no bfloat16; its bits are those of any number of 16.
        is_bfloat16 = made.target is BFLOAT16
        dtype = np.dtype(np.int16) if is_bfloat16 else dtype_of(made.target)
        view = StridedMemoryView.from_buffer(made.buffer, made.shape, dtype=dtype)
        found = self._of_library("from_dlpack")(Result(view, made.buffer, made.array))
        return found.view(self._of_library("bfloat16")) if is_bfloat16 else found

    def _of_library(self, name: str) -> Callable[..., Any]:
        """Return what the caller's library has by a name."""
        home = {"from_dlpack": "jax.dlpack", "bfloat16": "jax.numpy"}[name]
        module = sys.modules.get(home if self._root in ("jax", "jaxlib") else self._root)
        found: Callable[..., Any] | None = getattr(module, name, None)
        if found is None:
            raise TypeError(f"x is on a card, and {self._root} has no {name} for the result")
        return found


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Tell whether elements follow each other; the stride of an axis of length 1 is any."""
    if 0 in shape:
        return True
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True
