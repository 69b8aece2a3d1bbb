"""Planted bugs of memory: buffers that are used again, and places that are counted too short."""

from typing import Any

import numpy as np

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Results, Saved
from verify.planted.entry import plant

PLACES = 2**24


class YInOneBuffer(Kernel):
    """y is in a buffer that the next forward pass of the same shape overwrites."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def forward(
        self, x: Array, gamma: Array | None, beta: Array | None, eps: float
    ) -> tuple[Array, Any]:
        y, saved = super().forward(x, gamma, beta, eps)
        buffer = self.buffers.setdefault((y.shape, y.dtype), np.empty_like(y))
        buffer[...] = y
        return buffer, saved


class GradientsInOneBuffer(Kernel):
    """dbeta is in a buffer that the next backward pass of the same width overwrites."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, dbeta = super().backward(dy, saved)
        if dbeta is None:
            return dx, dgamma, None
        buffer = self.buffers.setdefault((dbeta.shape, dbeta.dtype), np.empty_like(dbeta))
        buffer[...] = dbeta
        return dx, dgamma, buffer


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
    plant(YInOneBuffer(), "y in a buffer that is used again", verdict="results kept"),
    plant(GradientsInOneBuffer(), "dbeta in a buffer that is used again", verdict="results kept"),
    plant(SavedIsSpent(), "backward spends what was saved", verdict="saved kept"),
    plant(LeftOutBeyond(), "elements beyond 2^24 left out", verdict="large calls"),
    plant(PlacesInFloat32(), "places in float32", verdict="large calls"),
]
