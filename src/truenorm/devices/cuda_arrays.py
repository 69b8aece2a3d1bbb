"""Arrays on a card of NVIDIA: those of CuPy, PyTorch, JAX and others, through DLPack.

Never run on a card by its authors.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.core import Buffer, Device
from cuda.core.utils import StridedMemoryView

from truenorm.devices.arrays import OnDevice, checked_target, dtype_of
from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.gpu.cuda import Cuda

__all__ = ["CudaArrays"]


class CudaArrays:
    """Arrays of one library on one card, used on the caller's stream."""

    def __init__(self, like: Any, stream: Any) -> None:
        device = Device(int(like.__dlpack_device__()[1]))
        device.set_current()
        chosen = device.default_stream if stream is None else device.create_stream(stream)
        self.runtime = Cuda(device, chosen)
        self._from_dlpack = _importer(like)

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory."""
        if isinstance(array, np.ndarray):
            array = self._copied(array, checked_target(name, array.dtype))
        view = StridedMemoryView.from_any_interface(array, int(self.runtime.stream.handle))
        if view.strides is not None and not _is_contiguous(view.shape, view.strides):
            raise ValueError(f"{name} is not C-contiguous: pass a copy of it that is")
        target = checked_target(name, view.dtype)
        return OnDevice(array, _memory_of(view, array), tuple(view.shape), target)

    def _copied(self, array: Any, target: FloatFormat) -> Any:
        found = self.empty(array.shape, target)
        self.runtime.write(array, found.buffer)
        return found.array

    def numbers(self, array: Any) -> OnDevice:
        """Return an array of float64 that `empty` has made, with its memory."""
        view = StridedMemoryView.from_any_interface(array, int(self.runtime.stream.handle))
        return OnDevice(array, _memory_of(view, array), tuple(view.shape), FLOAT64)

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return a new array of the caller's library."""
        dtype = dtype_of(target)
        buffer = self.runtime.empty(int(np.prod(shape)) * dtype.itemsize)
        view = StridedMemoryView.from_buffer(buffer, shape, dtype=dtype)
        return OnDevice(self._from_dlpack(view), buffer, shape, target)


def _memory_of(view: StridedMemoryView, owner: Any) -> Buffer:
    """Return the memory of somebody else's array, which stays theirs."""
    itemsize = 1 if view.dtype is None else view.dtype.itemsize
    return Buffer.from_handle(view.ptr, view.size * itemsize, owner=owner)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Tell whether elements follow each other; the stride of an axis of length 1 is any."""
    step = 1
    for length, stride in zip(reversed(shape), reversed(strides), strict=True):
        if length != 1 and stride != step:
            return False
        step *= length
    return True


def _importer(like: Any) -> Callable[[Any], Any]:
    """Return what makes an array of the caller's library of memory that is handed over."""
    root = type(like).__module__.partition(".")[0]
    name = "jax.dlpack" if root in ("jax", "jaxlib") else root
    importer = getattr(sys.modules.get(name), "from_dlpack", None)
    if importer is None:
        raise TypeError(
            f"x is a {type(like).__name__} on a card, and {root} has no from_dlpack for the result"
        )
    found: Callable[[Any], Any] = importer
    return found
