"""What an interface must offer: memory of a device, and kernels launched on it."""

from typing import Any, Protocol

from numpy.typing import NDArray

from truenorm.kernels.gpu.plan import Plan

__all__ = ["Buffer", "Runtime"]

Buffer = Any
"""Memory of a device, in whatever form the interface takes it."""


class Runtime(Protocol):
    """Does all of this in order; only what copies from or to NumPy waits."""

    @property
    def name(self) -> str:
        """What the device calls itself."""

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Return a copy on the device."""

    def empty(self, size: int) -> Buffer:
        """Return so many bytes."""

    def zeros(self, size: int) -> Buffer:
        """Return so many bytes that are zero."""

    def filled(self, count: int, value: float) -> Buffer:
        """Return so many float32 numbers that are all the same."""

    def download(self, buffer: Buffer, into: NDArray[Any], start: int = 0) -> None:
        """Copy from a byte on, when all that was launched is done."""

    def write(self, array: NDArray[Any], buffer: Buffer, start: int = 0) -> None:
        """Copy to the device, from a byte on."""

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Have blocks of the plan's threads, if any, run a kernel; numbers are NumPy's."""
