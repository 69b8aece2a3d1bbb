"""Arrays of pyopencl."""

from functools import lru_cache
from typing import Any

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array

from truenorm.devices.arrays import OnDevice, checked_target, dtype_of
from truenorm.exact import FloatFormat
from truenorm.kernels.gpu.opencl import OpenCL
from truenorm.kernels.gpu.runtime import missing_of

__all__ = ["OpenCLArrays"]

ANY_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


@lru_cache(maxsize=8)
def _runtime(queue: cl.CommandQueue) -> OpenCL:
    """Return what launches kernels on a queue, with all that it has compiled."""
    if missing := missing_of(queue.device):
        raise ValueError(f"{queue.device.name.strip()} {missing}: bits could not be promised")
    if queue.properties & ANY_ORDER:
        raise ValueError(
            "the queue takes commands in any order, and kernels need that of their launches: pass "
            "stream=, a queue without OUT_OF_ORDER_EXEC_MODE_ENABLE"
        )
    return OpenCL(queue)


class OpenCLArrays:
    """Arrays of one queue."""

    def __init__(self, like: cl_array.Array, stream: Any) -> None:
        queue = like.queue if stream is None else stream
        if queue is None:
            raise ValueError("x has no queue: pass stream=, the queue to use")
        if not isinstance(queue, cl.CommandQueue):
            raise TypeError(f"stream must be None or a pyopencl.CommandQueue, got {stream!r}")
        self.runtime = _runtime(queue)

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory."""
        if not isinstance(array, cl_array.Array):
            array = cl_array.to_device(self.runtime.queue, np.asarray(array, order="C"))
        target = checked_target(name, array.dtype)
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} is not C-contiguous: pass {name}.copy()")
        return self.again(OnDevice(array, _memory_of(name, array), array.shape, target))

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return a new array."""
        array = cl_array.empty(self.runtime.queue, shape, dtype_of(target))
        return OnDevice(array, array.base_data, shape, target)

    def kept(self, made: OnDevice) -> OnDevice:
        """Return memory with the event that this call fills it."""
        made.array.add_event(cl.enqueue_marker(self.runtime.queue))
        return made

    def again(self, made: OnDevice) -> OnDevice:
        """Return memory of an array, when those who write it, maybe by other queues, are done."""
        if made.array.events:
            cl.enqueue_barrier(self.runtime.queue, wait_for=made.array.events)
        return made

    def handed_over(self, made: OnDevice) -> cl_array.Array:
        """Return an array; other queues that use it wait."""
        return self.kept(made).array


def _memory_of(name: str, array: cl_array.Array) -> cl.Buffer:
    """Return the memory of an array, which may be a part of another one's."""
    if not array.offset:
        return array.base_data
    try:
        return array.base_data.get_sub_region(array.offset, array.nbytes)
    except cl.RuntimeError as refused:
        raise ValueError(
            f"{name} begins at byte {array.offset} of its memory, where the device lets no array "
            f"begin: pass {name}.copy()"
        ) from refused
