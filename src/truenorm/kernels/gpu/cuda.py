"""Compiles kernels by NVRTC and launches them by CUDA.

Never run on a card by its authors: what it launches, and with what, is what OpenCL's tests run.
"""

from functools import cache
from typing import Any

import numpy as np
from cuda.core import Buffer, Device, LaunchConfig, Program, ProgramOptions, Stream, launch
from numpy.typing import NDArray

from truenorm.kernels.gpu.plan import Plan, source_of

__all__ = ["Cuda", "compiled"]

Array = NDArray[Any]


@cache
def compiled(kernel: str, plan: Plan, architecture: str) -> Any:
    """Return the object code of a kernel; no card is needed for that."""
    options = ProgramOptions(
        arch=architecture,
        fma=False,
        define_macro=[(name, str(value)) for name, value in plan.macros.items()],
    )
    return Program(source_of(kernel), "c++", options).compile("cubin")


class Cuda:
    """A card, and the stream of whoever calls."""

    def __init__(self, device: Device, stream: Stream) -> None:
        self.device, self.stream = device, stream

    @property
    def name(self) -> str:
        """What the card calls itself."""
        return str(self.device.name)

    def upload(self, array: Array) -> Buffer:
        """Return a copy on the card."""
        buffer = self.empty(array.nbytes)
        self.write(array, buffer)
        return buffer

    def empty(self, size: int) -> Buffer:
        """Return so many bytes of the card."""
        return self.device.allocate(max(size, 1), stream=self.stream)

    def zeros(self, size: int) -> Buffer:
        """Return so many bytes that are zero."""
        buffer = self.empty(size)
        buffer.fill(0, stream=self.stream)
        return buffer

    def filled(self, count: int, value: float) -> Buffer:
        """Return so many float32 numbers that are all the same."""
        buffer = self.empty(4 * count)
        buffer.fill(np.float32(value).tobytes(), stream=self.stream)
        return buffer

    def download(self, buffer: Buffer, into: Array, start: int = 0) -> None:
        """Copy from a byte on, when all that was launched is done."""
        if into.size:
            _memory_of(into).copy_from(_part(buffer, start, into.nbytes), stream=self.stream)
        self.stream.sync()

    def write(self, array: Array, buffer: Buffer, start: int = 0) -> None:
        """Copy to the card, from a byte on."""
        given = np.ascontiguousarray(array)
        if given.size:
            _part(buffer, start, given.nbytes).copy_from(_memory_of(given), stream=self.stream)
            self.stream.sync()  # the array may be gone, or changed, before it is read

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Have blocks of the plan's threads run a kernel; it may not be done on return."""
        if not blocks:
            return
        major, minor = self.device.compute_capability
        found = compiled(kernel, plan, f"sm_{major}{minor}").get_kernel(kernel)
        config = LaunchConfig(grid=blocks, block=plan.threads)
        launch(self.stream, config, found, *arguments)


def _part(buffer: Buffer, start: int, size: int) -> Buffer:
    return Buffer.from_handle(int(buffer.handle) + start, size, owner=buffer)


def _memory_of(array: Array) -> Buffer:
    return Buffer.from_handle(array.ctypes.data, array.nbytes, owner=array)
