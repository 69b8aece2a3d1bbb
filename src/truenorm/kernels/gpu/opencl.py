"""Compiles kernels and launches them by OpenCL: on any device with float64, a processor too."""

from functools import cache
from threading import Lock
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from truenorm.kernels.gpu.plan import Plan, source_of

__all__ = ["OpenCL", "compiled"]

Array = NDArray[Any]

OPTIONS = ["-cl-std=CL1.2"]
"""None that allows contraction, reordering or flushing; the source forbids the first itself."""


class OpenCL:
    """A queue of a device."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue, self.context = queue, queue.context

    @property
    def name(self) -> str:
        """What the device calls itself."""
        return str(self.queue.device.name).strip()

    def upload(self, array: Array) -> cl.Buffer:
        """Return a copy on the device."""
        buffer = self.empty(array.nbytes)
        self.write(array, buffer)
        return buffer

    def empty(self, size: int) -> cl.Buffer:
        """Return so many bytes of the device."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(size, 1))

    def zeros(self, size: int) -> cl.Buffer:
        """Return so many bytes that are zero."""
        buffer = self.empty(size)
        cl.enqueue_fill_buffer(self.queue, buffer, np.zeros(1, np.uint8), 0, max(size, 1))
        return buffer

    def filled(self, count: int, value: float) -> cl.Buffer:
        """Return so many float32 numbers that are all the same."""
        buffer = self.empty(4 * count)
        cl.enqueue_fill_buffer(self.queue, buffer, np.float32(value), 0, 4 * count)
        return buffer

    def download(self, buffer: cl.Buffer, into: Array, start: int = 0) -> None:
        """Copy from a byte on, when all that was launched is done."""
        if into.size:
            cl.enqueue_copy(self.queue, into, buffer, src_offset=start)

    def write(self, array: Array, buffer: cl.Buffer, start: int = 0) -> None:
        """Copy to the device, from a byte on."""
        if array.size:
            cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(array), dst_offset=start)

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Have blocks of the plan's threads run a kernel; it may not be done on return."""
        if not blocks:
            return
        most = self.queue.device.max_work_group_size
        if plan.threads > most:
            raise ValueError(
                f"rows of {plan.size} elements take blocks of {plan.threads} threads, and "
                f"{self.name} has at most {most}: use a backend on the CPU"
            )
        size = (blocks * plan.threads,)
        with _launching:  # a kernel holds its arguments until it is launched
            compiled(self.context, kernel, plan)(self.queue, size, (plan.threads,), *arguments)


_launching = Lock()


@cache
def compiled(context: cl.Context, kernel: str, plan: Plan) -> cl.Kernel:
    """Return a kernel for the devices of a context."""
    options = [*OPTIONS, *(f"-D{name}={value}" for name, value in plan.macros.items())]
    return cl.Kernel(cl.Program(context, source_of(kernel)).build(options), kernel)
