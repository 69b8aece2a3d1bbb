"""Sums over rows, which are on the device while backward sweeps."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.double_double import two_sum
from truenorm.kernels.gpu.runtime import Buffer, Runtime
from truenorm.kernels.ground import SLACK, SUMS, U
from truenorm.kernels.lattice.digits import Digits
from truenorm.kernels.rounding import Tested, round_pair, round_to, same_roundings

__all__ = ["Sums"]

Float64 = NDArray[np.float64]


class Sums:
    """dgamma as pairs with a bound, and dbeta as exact pairs, SIZE of each: see `kernels.ground`.

    There is one part of the rows, so that no two of these are ever merged.
    """

    def __init__(self, runtime: Runtime, buffer: Buffer, size: int, *, has_bounds: bool) -> None:
        self._runtime, self._size = runtime, size
        self.buffer, self.has_bounds = buffer, has_bounds

    def merge(self, _other: "Sums") -> None:
        """Is not called."""
        raise NotImplementedError

    @cached_property
    def numbers(self) -> Float64:
        """All of them, when all rows are done."""
        found = np.empty((SUMS, self._size))
        self._runtime.download(self.buffer, found)
        return found

    @property
    def dgamma(self) -> "BoundedSum":
        """Of dy*xhat."""
        return BoundedSum(self)

    @property
    def dbeta(self) -> "ExactSum":
        """Of dy."""
        return ExactSum(self)


class BoundedSum:
    """dgamma."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self.merge = sums.merge

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are known well enough."""
        high, low, bound, *_ = self._sums.numbers
        z = (high + low) + 0.0
        bound = SLACK * (bound + 2 * U * np.abs(z)) if self._sums.has_bounds else 0.0
        return same_roundings(round_to(z - bound, target), round_to(z + bound, target))


class ExactSum:
    """dbeta."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums
        self.merge = sums.merge

    def rounded(self, target: FloatFormat) -> Tested:
        """Round the sums that are exact."""
        *_, high, low = self._sums.numbers
        refused = np.isnan(low) | np.isnan(high)
        pair = two_sum(np.where(refused, 0.0, high), np.where(refused, 0.0, low))
        return Tested(round_pair(*pair, np.zeros(len(high), np.int64), target), refused)

    def as_digits(self) -> Digits | None:
        """Return the sums if all are exact."""
        pairs = self._sums.numbers[3:]
        if np.isnan(pairs).any():
            return None
        found = Digits(pairs.shape[1])
        found.add(pairs.copy())
        return found
