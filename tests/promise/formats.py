"""The four types as bit patterns, and correct rounding to them: the judge's own."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from flint import arb, fmpq
from numpy.typing import NDArray

Array = NDArray[Any]

# Every number of the four types is an integer multiple of this power of two.
UNIT_EXPONENT = -1074


@dataclass(frozen=True)
class Format:
    """A binary interchange format; every rounding is to nearest even and gives the bits."""

    width: int
    precision: int
    quantum: int  # the exponent of the smallest subnormal

    @cached_property
    def infinity(self) -> int:
        return ((1 << (self.width - self.precision)) - 1) << (self.precision - 1)

    @cached_property
    def nan(self) -> int:
        return self.infinity | 1 << (self.precision - 2)

    @cached_property
    def minus(self) -> int:
        return 1 << (self.width - 1)

    @cached_property
    def storage(self) -> np.dtype[Any]:
        return np.dtype(f"u{self.width // 8}")

    def of_dyadic(self, mantissa: int, exponent: int) -> int:
        """Round mantissa * 2^exponent."""
        sign, mantissa = (self.minus, -mantissa) if mantissa < 0 else (0, mantissa)
        quantum = max(exponent + mantissa.bit_length() - self.precision, self.quantum)
        dropped = quantum - exponent
        if dropped <= 0:
            kept = mantissa << -dropped
        else:
            kept = mantissa >> dropped
            twice_rest = (mantissa - (kept << dropped)) << 1
            one = 1 << dropped
            if twice_rest > one or (twice_rest == one and kept & 1):
                kept += 1
        # The leading bit of a normal number, and a carry into it, count up the exponent field.
        magnitude = ((quantum - self.quantum) << (self.precision - 1)) + kept if mantissa else 0
        return sign | min(magnitude, self.infinity)

    def of_rational(self, value: fmpq) -> int:
        numerator, denominator = int(value.p), int(value.q)
        # A quotient two bits longer than the format, with a last bit that says "and a bit more".
        shift = max(0, self.precision + 2 + denominator.bit_length() - abs(numerator).bit_length())
        quotient, rest = divmod(abs(numerator) << shift, denominator)
        sticky = quotient << 1 | (rest != 0)
        return self.of_dyadic(-sticky if numerator < 0 else sticky, -shift - 1)

    def of_ball(self, ball: arb) -> int | None:
        """Round what lies in the ball, or None if that depends on where in it."""
        if not ball.is_finite():
            return None
        (low, low_exponent), (high, high_exponent) = (
            ball.lower().man_exp(),
            ball.upper().man_exp(),
        )
        # -0 and +0 differ in their bits, so a ball around zero is settled only if it is zero.
        bits_low = self.of_dyadic(int(low), int(low_exponent))
        bits_high = self.of_dyadic(int(high), int(high_exponent))
        return bits_low if bits_low == bits_high else None

    def of_special(self, value: float) -> int:
        if value != value:
            return self.nan
        return self.infinity if value > 0 else self.minus | self.infinity


FORMATS = {
    np.dtype(np.float16): Format(16, 11, -24),
    np.dtype(ml_dtypes.bfloat16): Format(16, 8, -133),
    np.dtype(np.float32): Format(32, 24, -149),
    np.dtype(np.float64): Format(64, 53, UNIT_EXPONENT),
}


def bits(array: Array) -> NDArray[np.unsignedinteger[Any]]:
    """Return the bit patterns: the only way to compare, since NaN != NaN and -0 == +0."""
    return np.ascontiguousarray(array).view(FORMATS[array.dtype].storage)
