"""In which order kernels and their caller use the memory of a card."""

import sys
from typing import Any

from cuda.core import Buffer, Device, Stream
from cuda.core.utils import StridedMemoryView

__all__ = ["Result", "stream_of"]

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
