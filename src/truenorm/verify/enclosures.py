r"""Enclosures of the results of wide cases and user cases: double-double ball arithmetic.

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
  \|e\| <= 1/2, then 1/sqrt(w) = r/sqrt(1 - e), which differs from r by at most r*\|e\|.

Radii are computed in float64 and enlarged by 2^-20 each time, for more roundings than a column has
rows. Products of numbers beyond `LIMIT` would overflow: `unsupported_reason` excludes them.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.oracle import output_types
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

LIMIT = 2.0**240
"""The largest input: a product of four is below the largest float64 number."""
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


BLOCK_ELEMENTS = 2**15
"""A few arrays of this size fit in a CPU's cache; a block has at least one row."""
Enclosures = dict[str, Ball]


@runtime_checkable
class EnclosedNorm(Protocol):
    """What `enclose` needs to know of an operation: see `truenorm.verify.operations.norms`."""

    centred: bool
    adds: bool
    gain: str

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""


def row_blocks(case: Case) -> Iterator[slice]:
    """Yield the rows of a case in blocks."""
    rows, size = case.shape
    step = max(1, BLOCK_ELEMENTS // max(size, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def unsupported_reason(case: Case) -> str:
    """Return why a case has no enclosure, or an empty string if it has one."""
    if not isinstance(case.operation, EnclosedNorm):
        return f"user cases need a norm; got {case.operation.title}"
    for name, array in case.inputs.items():
        if array is None:
            continue
        for start in range(0, len(array), 64):
            supported = np.abs(array[start : start + 64].astype(np.float64)) <= LIMIT
            if not supported.all():
                first = np.argwhere(~supported)[0]
                at = [start + int(first[0]), *map(int, first[1:])]
                return (
                    f"{name} must have finite numbers up to {LIMIT:.1g}, since others have no "
                    f"bounds; got {name}{at} = {array[tuple(at)]}"
                )
    if case.eps < 2.0**-240:
        centred = case.operation.centred
        for block in row_blocks(case):
            rows = case.operation.normalized(case.part(block))
            spread = np.ptp(rows, axis=1) if centred else np.abs(rows).max(axis=1)
            if (spread < 2.0**-240).any():
                at = block.start + int(np.argmin(spread))
                kind = "constant" if centred else "zero"
                return f"row {at} of x is {kind}, and eps is {case.eps:g}: its norm is undefined"
    return ""


@np.errstate(all="ignore")  # an overflow makes the radius infinite or NaN
def enclose_forward(case: Case) -> Enclosures:
    """Return balls of the results of forward, and of r and xhat of each row."""
    norm = case.operation
    if not isinstance(norm, EnclosedNorm):
        raise TypeError(unsupported_reason(case))
    size = case.shape[1]
    x = Ball.of(norm.normalized(case))
    centred = x - x.sum(1).over(size) if norm.centred else x
    eps = Ball.of(np.full((1, 1), case.eps))
    r = ((centred * centred).sum(1).over(size) + eps).inverse_root()
    xhat = centred * r
    gain, beta = _gain(case, norm), _parameter(case.inputs.get("beta"))
    y = xhat if gain is None else gain * xhat
    balls = {"r": r, "xhat": xhat, "y": y if beta is None else y + beta}
    if norm.adds:
        summands = case.x.astype(np.float64), case.residual.astype(np.float64)
        total, error = two_sum(*summands)
        balls["sum"] = Ball(total, error, np.zeros_like(total))
    return balls


@np.errstate(all="ignore")
def enclose(case: Case) -> Enclosures:
    """Return balls of the results of a case, and of r and xhat of each row.

    Sums over rows are one row.
    """
    balls = enclose_forward(case)
    norm = case.operation
    assert isinstance(norm, EnclosedNorm)
    size, r, xhat, gain = case.shape[1], balls["r"], balls["xhat"], _gain(case, norm)
    dy = Ball.of(case.dy.astype(np.float64))
    g = dy if gain is None else gain * dy
    projected = g - xhat * (g * xhat).sum(1).over(size)
    if norm.centred:
        projected = projected - g.sum(1).over(size)
    balls["dx"] = r * projected
    balls["dgamma"] = (dy * xhat).sum(0)
    balls["dbeta"] = dy.sum(0)
    if norm.adds:
        balls["dx"] = balls["dx"] + Ball.of(case.dsum.astype(np.float64))
        balls["dresidual"] = balls["dx"]
    return balls


def answers_by_enclosure(case: Case) -> dict[str, Float64s] | None:
    """Return what `Operation.exact` does, or None if a ball does not decide how to round.

    The values are the same as by integers. The remainders are off by 2^-29 ulp at most.
    """
    balls = enclose(case.part(slice(case.shape[0] // case.repeats)))
    arrays = {"r": balls["r"].high, "xhat": balls["xhat"].high}
    for output, kind in output_types(case).items():
        ball = balls[output]
        if not case.operation.is_rows(output):
            repeats = float(case.repeats)
            ball = Ball(ball.high[0], ball.low[0], ball.radius[0])
            if case.repeats & (case.repeats - 1):
                ball = ball * Ball.of(np.full(1, repeats))
            else:  # a power of two: nothing is rounded, so that ties are decided
                ball = ball.map(partial(np.multiply, repeats))
        rounded = round_ball(ball, kind)
        if not (rounded.low == rounded.high).all():
            return None
        arrays[output] = np.stack([rounded.value, rounded.remainder], axis=-1)
    return arrays


def _parameter(array: Array | None) -> Ball | None:
    """Return a parameter as one row."""
    return None if array is None else Ball.of(array.astype(np.float64)[np.newaxis])


def _gain(case: Case, norm: EnclosedNorm) -> Ball | None:
    """Return the factor of each column, or None without gamma."""
    gain = _parameter(case.gamma)
    if gain is None or norm.gain == "plain":
        return gain
    return gain + Ball.of(np.ones((1, 1)))


@np.errstate(all="ignore")  # eps of tiny rows is infinite: kappa is then 0
def largest_kappa(case: Case) -> float:
    """Return the largest kappa of a row, approximately."""
    norm = case.operation
    if not isinstance(norm, EnclosedNorm) or not norm.centred:
        return 1.0
    largest = 0.0
    for block in row_blocks(case):
        rows = norm.normalized(case.part(block))
        size = np.abs(rows).max(axis=1, keepdims=True)  # squares of large rows overflow
        size[size == 0] = 1.0
        rows = rows / size
        squares = (rows * rows).mean(axis=1)
        variance = np.square(rows - rows.mean(axis=1, keepdims=True)).mean(axis=1)
        eps = np.square(math.sqrt(case.eps) / size[:, 0])
        largest = max(largest, float(np.sqrt(squares / (variance + eps)).max(initial=0.0)))
    return largest
