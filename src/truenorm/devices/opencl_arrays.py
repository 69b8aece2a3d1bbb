"""Arrays of pyopencl."""

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from truenorm.devices.arrays import OnDevice, checked_target, dtype_of
from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.gpu.devices import missing_of
from truenorm.kernels.gpu.opencl import OpenCL

__all__ = ["OpenCLArrays"]


@lru_cache(maxsize=8)
def _runtime(queue: cl.CommandQueue) -> OpenCL:
    """Return what launches kernels on a queue, with all that it has compiled."""
    if missing := missing_of(queue.device):
        raise ValueError(f"{queue.device.name.strip()} {missing}: bits could not be promised")
    return OpenCL(queue)


class OpenCLArrays:
    """Arrays of one queue."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.runtime = _runtime(queue)

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory."""
        if not isinstance(array, cl_array.Array):
            array = cl_array.to_device(self.runtime.queue, np.ascontiguousarray(array))
        target = checked_target(name, array.dtype)
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not C-contiguous: pass {name}.copy()")
        buffer = array.base_data
        if array.offset:
            buffer = buffer.get_sub_region(array.offset, array.nbytes)
        return OnDevice(array, buffer, array.shape, target)

    def numbers(self, array: cl_array.Array) -> OnDevice:
        """Return an array of float64 that `empty` has made, with its memory."""
        return OnDevice(array, array.base_data, array.shape, FLOAT64)

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return a new array."""
        array = cl_array.empty(self.runtime.queue, shape, dtype_of(target))
        return OnDevice(array, array.base_data, shape, target)
