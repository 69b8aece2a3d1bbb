r"""Balls: double-double numbers with a proven bound, as arrays.

A ball is high + low and a radius that bounds the distance of the true number. Each operation adds
its own rounding errors to the radius, so every result has a proven bound. With u = 2^-53 and
\|low\| <= u\|high\|:

- A sum adds the highs and the lows without error (TwoSum), which leaves four numbers. At most
  three roundings combine them, each of a number of at most 2u(\|a\| + \|b\|): together
  6u^2(\|a\| + \|b\|), and 8u^2 is used. The bound is relative to the summands, so it covers
  cancellation. Without lows, nothing is rounded.
- A product takes that of the highs without error (Dekker), and omits low*low, at most u^2\|ab\|.
  Two products and two sums are rounded, of at most u, u, 2u and 3u times \|ab\|: together
  8u^2\|ab\|, and 16u^2 is used. Underflow loses at most about 2^-1070: 2^-1060 is added.
- An inverse root is approximated, and its residual bounds its error: if w*r^2 = 1 - e with
  \|e\| <= 1/2, then 1/sqrt(w) = r/sqrt(1 - e), which differs from r by at most r*\|e\|. In the
  same way 1/x = r/(1 - e) with x*r = 1 - e, which differs from r by at most 2*\|r*e\|.

Radii are computed in float64 and enlarged by 2^-20 each time, for more roundings than a column has
rows. A product that overflows has an infinite radius.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from truenorm.verify.types import FORMATS, Float64s, ulps_of

U_SQUARED = 2.0**-106
UNDERFLOW = 2.0**-1060
ENLARGED = 1 + 2.0**-20
SPLITTER = 2.0**27 + 1


def two_sum(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the rounded sum of two arrays and its error, exactly (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _fast_two_sum(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the same for |b| <= |a| (Dekker)."""
    total = a + b
    return total, b - (total - a)


def _halves(a: Float64s) -> tuple[Float64s, Float64s]:
    """Split into two numbers of 26 bits, whose products are exact (Veltkamp)."""
    large = SPLITTER * a
    high = large - (large - a)
    return high, a - high


def _two_product(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the rounded product and its error (Dekker)."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@dataclass(frozen=True, slots=True)
class Ball:
    """An array of numbers with a bound for each."""

    high: Float64s
    low: Float64s
    radius: Float64s

    @classmethod
    def of(cls, values: Float64s) -> "Ball":
        """Return exact numbers."""
        zeros = np.zeros_like(values)
        return cls(values, zeros, zeros)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return self.high.shape

    def rows(self, which: slice) -> "Ball":
        """Return some rows."""
        return Ball(self.high[which], self.low[which], self.radius[which])

    def map(self, change: Callable[[Float64s], Float64s]) -> "Ball":
        """Reshape or select."""
        return Ball(change(self.high), change(self.low), change(self.radius))

    def __neg__(self) -> "Ball":
        """Negate."""
        return Ball(-self.high, -self.low, self.radius)

    def __add__(self, other: "Ball") -> "Ball":
        """Add."""
        sums, error = two_sum(self.high, other.high)
        lows, low_error = two_sum(self.low, other.low)
        sums, error = _fast_two_sum(sums, error + lows)
        high, low = _fast_two_sum(sums, error + low_error)
        radius = self.radius + other.radius
        if self.low.any() or other.low.any():
            radius = radius + 8 * U_SQUARED * (np.abs(self.high) + np.abs(other.high))
        return Ball(high, low, radius * ENLARGED)

    def __sub__(self, other: "Ball") -> "Ball":
        """Subtract."""
        return self + -other

    def __mul__(self, other: "Ball") -> "Ball":
        """Multiply."""
        product, error = _two_product(self.high, other.high)
        error = error + (self.high * other.low + self.low * other.high)
        high, low = _fast_two_sum(product, error)
        sizes, others = np.abs(self.high), np.abs(other.high)
        radius = self.radius * (others + other.radius) + sizes * (
            other.radius + 16 * U_SQUARED * others
        )
        return Ball(high, low, (radius + UNDERFLOW) * ENLARGED)

    def sum(self, axis: int) -> "Ball":
        """Sum along an axis by halves; the axis stays, with one element."""
        if axis:
            swapped = Ball(self.high.T, self.low.T, self.radius.T).sum(0)
            return Ball(swapped.high.T, swapped.low.T, swapped.radius.T)
        total, odd = self, []
        while (count := len(total.high)) > 1:
            if count % 2:
                odd.append(total.rows(slice(-1, None)))
            half = count // 2
            total = total.rows(slice(half)) + total.rows(slice(half, 2 * half))
        for each in odd:
            total = total + each
        return total

    def over(self, count: int) -> "Ball":
        """Divide by an integer."""
        guess = np.ones_like(self.high[:1, :1]) if self.high.ndim == 2 else np.ones(1)
        guess = guess / count
        product, error = _two_product(guess, np.full_like(guess, float(count)))
        residual = (1.0 - product) - error
        # The error of 1/count is then residual^2/count, and a rounding of it.
        high, low = _fast_two_sum(guess, guess * residual)
        return self * Ball(high, low, 4 * U_SQUARED * guess)

    def reciprocal(self) -> "Ball":
        """Return 1/x; the radius is NaN where there is no bound."""
        start, one = Ball.of(1.0 / self.high), Ball.of(np.ones_like(self.high))
        guess = start + start * (one - self * start)
        guess = Ball(guess.high, guess.low, np.zeros_like(guess.high))
        residual = one - self * guess
        error = np.abs(residual.high) + np.abs(residual.low) + residual.radius
        radius = np.where(error <= 0.5, 2 * np.abs(guess.high) * error * ENLARGED, np.nan)
        return Ball(guess.high, guess.low, radius)

    def inverse_root(self) -> "Ball":
        """Return 1/sqrt of positive numbers; the radius is NaN where there is no bound."""
        start = Ball.of(1.0 / np.sqrt(self.high))
        one, half = Ball.of(np.ones_like(self.high)), Ball.of(np.full_like(self.high, 0.5))
        guess = start + half * start * (one - self * start * start)
        guess = Ball(guess.high, guess.low, np.zeros_like(guess.high))
        residual = one - self * guess * guess
        error = np.abs(residual.high) + np.abs(residual.low) + residual.radius
        radius = np.where(error <= 0.5, np.abs(guess.high) * error * ENLARGED, np.nan)
        return Ball(guess.high, guess.low, radius)


class RoundedBall(NamedTuple):
    """A ball rounded to a type.

    `remainder` is the distance of its centre from the value, in ulp of the value. `low` and `high`
    are the ends of the ball, rounded: where they are equal, the value is correctly rounded.
    """

    value: Float64s
    ulps: Float64s
    remainder: Float64s
    radius: Float64s
    low: Float64s
    high: Float64s


@np.errstate(all="ignore")
def round_ball(ball: Ball, kind: str) -> RoundedBall:
    """Round the numbers of a ball to a type, ties to even."""
    value = _round_to_type(ball.high, kind)
    finite = np.isfinite(value)
    ulps = ulps_of(np.where(finite, value, 0.0), kind)
    remainder = np.where(finite, ((ball.high - value) + ball.low) / ulps, 0.0)
    # Add the rounding errors of the float64 arithmetic here and in `element_errors`.
    radius = ball.radius * (1 + 2.0**-50) + 2.0**-51 * np.abs(ball.low) + 2.0**-52 * ulps
    low, high = ball.high + (ball.low - radius), ball.high + (ball.low + radius)
    if kind != "float64":  # rounded twice: leave answers next to a tie of the type undecided
        low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
    exact = (ball.radius == 0) & ((ball.low == 0) | (kind == "float64"))
    low, high = (np.where(exact, value, _round_to_type(end, kind)) for end in (low, high))
    return RoundedBall(value, ulps, remainder, radius, low, high)


def _round_to_type(values: Float64s, kind: str) -> Float64s:
    """Round to a type, ties to even; the result is float64."""
    ulps = ulps_of(values, kind)
    rounded = np.rint(values / ulps) * ulps
    in_range = np.abs(rounded) < 2.0 ** (FORMATS[kind].limit - 1) * 2
    return np.where(in_range, rounded, rounded * np.inf)
