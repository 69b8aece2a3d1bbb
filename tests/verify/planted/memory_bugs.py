"""Planted bugs of memory: buffers that are used again, and places that are counted too short."""

from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Results, Saved
from verify.planted.entry import plant

PLACES = 2**24


class OneBuffer(Kernel):
    """y and dbeta are in buffers that the next pass with as many elements overwrites."""

    def __init__(self, output: str) -> None:
        self.output_there = output
        self.buffers: dict[Any, Array] = {}

    def there(self, output: str, result: Array) -> Array:
        """Return a result, in the buffer if it is its turn."""
        if output != self.output_there:
            return result
        buffer = self.buffers.setdefault((result.shape, result.dtype), np.empty_like(result))
        buffer[...] = result
        return buffer

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x, *rest)
        return self.there("y", y), saved

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, dbeta = super().backward(dy, saved)
        return dx, dgamma, None if dbeta is None else self.there("dbeta", dbeta)


class SavedIsSpent(Kernel):
    """Backward multiplies what was saved in place, so that it is good for one time."""

    def backward(self, dy: Array, saved: Any) -> Results:
        results = super().backward(dy, saved)
        saved.rstd[...] *= saved.rstd
        return results


class LeftOutBeyond(Kernel):
    """Elements of y and dx beyond 2^24 of a call are left zero."""

    def output(self, saved: Saved) -> Float64s:
        y = super().output(saved)
        y.reshape(-1)[PLACES:] = 0
        return y

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        dx = super().project(slopes, gamma, xhat, saved)
        dx.reshape(-1)[PLACES:] = 0
        return dx


class PlacesInFloat32(Kernel):
    """The place of an element of dx is a float32 number, of which only every second is left."""

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        dx = super().project(slopes, gamma, xhat, saved)
        flat = dx.reshape(-1)
        places = np.arange(PLACES, flat.size)
        flat[places] = flat[np.minimum(places.astype(np.float32).astype(int), flat.size - 1)]
        return dx


MEMORY = [
    plant(OneBuffer("y"), "y in a buffer that is used again", verdict="results kept"),
    plant(OneBuffer("dbeta"), "dbeta in a buffer that is used again", verdict="results kept"),
    plant(SavedIsSpent(), "backward spends what was saved", verdict="saved kept"),
    plant(LeftOutBeyond(), "elements beyond 2^24 left out", verdict="large calls"),
    plant(PlacesInFloat32(), "places in float32", verdict="large calls"),
]
