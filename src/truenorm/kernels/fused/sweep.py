"""What a backward pass in correct mode is given, and what grows while it sweeps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.fused.blocks import Source
from truenorm.kernels.fused.compiled.columns.column_sums import merge
from truenorm.kernels.fused.compiled.ground import SUMS
from truenorm.kernels.fused.scratch import aligned
from truenorm.kernels.special import SpecialSum

__all__ = ["Sweep", "Totals"]

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Sweep:
    """The arguments of backward, as its kernels take them."""

    dy: Source
    x: Source
    count: int
    size: int
    kept: Float64
    gamma: Float64
    scaled_gamma: Float64
    gamma_exponent: int
    dy_exponent: int
    """For float64 data gamma is scaled by a power of two, and so are all dy for dgamma."""
    eps: float
    target: FloatFormat
    stored: np.dtype[Any]
    nan: Any
    wide: bool
    threads: int


class Totals:
    """The sums over some rows."""

    def __init__(self, columns: int) -> None:
        self.sums = aligned(SUMS * columns).reshape(SUMS, columns)
        self.sums[...] = 0
        self.extent = np.array([0xFFFFFFFF, 0])
        self.not_finite: list[int] = []
        self.undefined = False
        self.dgamma_special: SpecialSum | None = None
        self.dbeta_special: SpecialSum | None = None

    def add(self, other: "Totals") -> None:
        """Add the sums over other rows."""
        merge(self.sums, other.sums)
        self.extent[0] = min(self.extent[0], other.extent[0])
        self.extent[1] = max(self.extent[1], other.extent[1])
        self.not_finite += other.not_finite
        self.undefined |= other.undefined
