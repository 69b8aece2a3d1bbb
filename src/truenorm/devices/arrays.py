"""Whose arrays they are, and how their memory is had."""

from typing import Any, NamedTuple, Protocol

from truenorm.exact import FloatFormat
from truenorm.kernels.gpu.runtime import Buffer, Runtime

__all__ = ["Library", "OnDevice", "library_of"]


class OnDevice(NamedTuple):
    """An array on a device: C-contiguous, of at most float32."""

    array: Any
    buffer: Buffer
    shape: tuple[int, ...]
    target: FloatFormat


class Library(Protocol):
    """Whoever arrays on a device belong to."""

    runtime: Runtime

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory; raise if it cannot be taken."""

    def numbers(self, array: Any) -> OnDevice:
        """Return an array of float64 that `empty` has made, with its memory."""

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return a new array."""


def library_of(x: Any, stream: Any = None) -> Library | None:
    """Return the library of an array on a device, and None for any other."""
    if type(x).__module__.partition(".")[0] == "pyopencl":
        from truenorm.devices.opencl_arrays import OpenCLArrays

        return OpenCLArrays(stream or x.queue)
    return None
