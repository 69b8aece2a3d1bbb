r"""Numbers with a bound: pairs of float64, and how far the true number can be from them.

A ball is high + low and a radius; the number that is meant is no further away than that. Each
operation adds to the radius what it rounds itself, so that whatever is computed of balls has a
bound with a proof, and nobody has to analyse a formula as a whole. With u = 2^-53 and numbers
whose low is at most u\|high\|:

- A sum adds the highs and the lows without an error (Knuth's steps), which leaves four numbers.
  Three roundings at most put them together, each of a number of at most 2u(\|a\| + \|b\|) and the
  third only where the sum of the lows is the larger one: together 6u^2(\|a\| + \|b\|), and 8u^2 is
  taken. It is measured by the summands and not by the sum, so that cancelling needs no word of
  its own.
- A product has that of the highs without an error (Dekker's steps), and leaves out low*low, at
  most u^2\|ab\|. Two products and two sums are rounded, of at most u, u, 2u and 3u times \|ab\|:
  together 8u^2\|ab\|, and 16u^2 is taken. Where a product is so small that digits of it are below
  the smallest number, that is at most some 2^-1070: 2^-1060 is added to every one.
- An inverse root is guessed, and its own equation tells how good it is: if w*r^2 = 1 - e with
  \|e\| <= 1/2, then 1/sqrt(w) is r/sqrt(1 - e), which is off from r by at most r*\|e\|.

A radius is itself computed in float64: it is taken larger by 2^-20 of itself each time, for more
roundings than a column has rows. Nothing here is for numbers beyond `LIMIT`, whose products would
overflow: who makes balls of data looks at that first.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array, Float64s

LIMIT = 2.0**240
"""The largest number: the product of four is below the largest of float64."""
SQUARE = 2.0**-106  # u^2
TINY = 2.0**-1060
MORE = 1 + 2.0**-20
SPLITTER = 2.0**27 + 1


def two_sum(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the sum of two arrays, rounded, and what that left over: exact, whatever they are."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _quick_sum(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the same where b is the smaller one."""
    total = a + b
    return total, b - (total - a)


def _halves(a: Float64s) -> tuple[Float64s, Float64s]:
    """Return two numbers of 26 digits whose sum it is: their products are exact."""
    large = SPLITTER * a
    high = large - (large - a)
    return high, a - high


def _two_product(a: Float64s, b: Float64s) -> tuple[Float64s, Float64s]:
    """Return the product, rounded, and what that left over."""
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


@dataclass(frozen=True, slots=True)
class Ball:
    """An array of numbers with a bound for each.

    Examples
    --------
    >>> third = Ball.of(np.ones(1)).over(3)
    >>> bool(third.radius[0] < 2.0**-100), float(third.high[0])
    (True, 0.3333333333333333)
    """

    high: Float64s
    low: Float64s
    radius: Float64s

    @classmethod
    def of(cls, values: Float64s) -> "Ball":
        """Return numbers that are what they are."""
        zeros = np.zeros_like(values)
        return cls(values, zeros, zeros)

    def rows(self, which: slice) -> "Ball":
        """Return some of them."""
        return Ball(self.high[which], self.low[which], self.radius[which])

    def __neg__(self) -> "Ball":
        """Return them with the other sign."""
        return Ball(-self.high, -self.low, self.radius)

    def __add__(self, other: "Ball") -> "Ball":
        """Add."""
        sums, left = two_sum(self.high, other.high)
        lows, rest = two_sum(self.low, other.low)
        sums, left = _quick_sum(sums, left + lows)
        high, low = _quick_sum(sums, left + rest)
        own = 8 * SQUARE * (np.abs(self.high) + np.abs(other.high))
        return Ball(high, low, (self.radius + other.radius + own) * MORE)

    def __sub__(self, other: "Ball") -> "Ball":
        """Subtract."""
        return self + -other

    def __mul__(self, other: "Ball") -> "Ball":
        """Multiply."""
        product, left = _two_product(self.high, other.high)
        left = left + (self.high * other.low + self.low * other.high)
        high, low = _quick_sum(product, left)
        sizes, others = np.abs(self.high), np.abs(other.high)
        radius = self.radius * (others + other.radius) + sizes * (
            other.radius + 16 * SQUARE * others
        )
        return Ball(high, low, (radius + TINY) * MORE)

    def sum(self, axis: int) -> "Ball":
        """Add up along an axis, which stays with one element: halves of it, again and again."""
        if axis:
            swapped = Ball(self.high.T, self.low.T, self.radius.T).sum(0)
            return Ball(swapped.high.T, swapped.low.T, swapped.radius.T)
        found, odd = self, []
        while (count := len(found.high)) > 1:
            if count % 2:
                odd.append(found.rows(slice(-1, None)))
            half = count // 2
            found = found.rows(slice(half)) + found.rows(slice(half, 2 * half))
        for each in odd:
            found = found + each
        return found

    def over(self, count: int) -> "Ball":
        """Divide by a number that is counted."""
        guess = np.ones_like(self.high[:1, :1]) if self.high.ndim == 2 else np.ones(1)
        guess = guess / count
        product, left = _two_product(guess, np.full_like(guess, float(count)))
        missing = (1.0 - product) - left
        # Of 1/count this leaves the square of what was missing, and a rounding of it.
        high, low = _quick_sum(guess, guess * missing)
        return self * Ball(high, low, 4 * SQUARE * guess)

    def inverse_root(self) -> "Ball":
        """Return 1/sqrt of numbers above zero; where that cannot be told, the radius is NaN."""
        start = Ball.of(1.0 / np.sqrt(self.high))
        one, half = Ball.of(np.ones_like(self.high)), Ball.of(np.full_like(self.high, 0.5))
        guess = start + half * start * (one - self * start * start)
        guess = Ball(guess.high, guess.low, np.zeros_like(guess.high))
        wrong = one - self * guess * guess
        off = np.abs(wrong.high) + np.abs(wrong.low) + wrong.radius
        radius = np.where(off <= 0.5, np.abs(guess.high) * off * MORE, np.nan)
        return Ball(guess.high, guess.low, radius)


AT_ONCE = 2**15
"""Elements, or one row: a few arrays of them are in a processor's own memory."""
Enclosures = dict[str, Ball]


def row_blocks(case: Case) -> Iterator[slice]:
    """Yield the rows of a case, a few at a time."""
    rows, size = case.shape
    step = max(1, AT_ONCE // max(size, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def unsupported_reason(case: Case) -> str:
    """Return why there is no bound for a case; nothing if there is one."""
    if not isinstance(case.operation, Norm):
        return f"own shapes and data are for norms, and not for {case.operation.title}"
    for name, array in case.inputs.items():
        if array is None:
            continue
        for start in range(0, len(array), 64):
            sizes = np.abs(array[start : start + 64].astype(np.float64))
            if not (sizes <= LIMIT).all():
                wrong = np.argwhere(~(sizes <= LIMIT))[0]
                at = [start + int(wrong[0]), *map(int, wrong[1:])]
                return (
                    f"{name}{at} is {array[tuple(at)]}: there are bounds for finite numbers up to "
                    f"{LIMIT:.1g}; others are among the judge's own cases"
                )
    if case.eps < 2.0**-240:
        centred = case.operation.centred
        for some in row_blocks(case):
            rows = case.operation.normalized(case.part(some))
            spread = np.ptp(rows, axis=1) if centred else np.abs(rows).max(axis=1)
            if (spread < 2.0**-240).any():
                at = some.start + int(np.argmin(spread))
                what = "constant" if centred else "zero"
                return f"row {at} of x is {what}, and eps is {case.eps:g}: it has no norm"
    return ""


@np.errstate(all="ignore")  # what is not finite is found in the radius
def enclose(case: Case) -> Enclosures:
    """Return the results of a case, and r and xhat of each row.

    Of sums over rows, what these rows have of them, as one row.
    """
    norm = case.operation
    if not isinstance(norm, Norm):
        raise TypeError(unsupported_reason(case))
    size = case.shape[1]
    x = Ball.of(norm.normalized(case))
    centred = x - x.sum(1).over(size) if norm.centred else x
    eps = Ball.of(np.full((1, 1), case.eps))
    r = ((centred * centred).sum(1).over(size) + eps).inverse_root()
    xhat = centred * r
    gain, beta = _gain(case, norm), _parameter(case.inputs.get("beta"))
    dy = Ball.of(case.dy.astype(np.float64))
    y = xhat if gain is None else gain * xhat
    found = {"r": r, "xhat": xhat, "y": y if beta is None else y + beta}
    g = dy if gain is None else gain * dy
    along = xhat * (g * xhat).sum(1).over(size)
    slope = g - along - g.sum(1).over(size) if norm.centred else g - along
    found["dx"] = r * slope
    found["dgamma"] = (dy * xhat).sum(0)
    found["dbeta"] = dy.sum(0)
    if norm.adds:
        summands = case.x.astype(np.float64), case.residual.astype(np.float64)
        total, left = two_sum(*summands)
        found["sum"] = Ball(total, left, np.zeros_like(total))
        found["dx"] = found["dx"] + Ball.of(case.dsum.astype(np.float64))
        found["dresidual"] = found["dx"]
    return found


def _parameter(given: Array | None) -> Ball | None:
    """Return a parameter as one row, exactly."""
    return None if given is None else Ball.of(given.astype(np.float64)[np.newaxis])


def _gain(case: Case, norm: Norm) -> Ball | None:
    """Return what a column is multiplied by; nothing if by 1."""
    gain = _parameter(case.gamma)
    if gain is None or norm.gain == "plain":
        return gain
    return gain + Ball.of(np.ones((1, 1)))


def largest_kappa(case: Case) -> float:
    """Return the largest kappa of a row, to some digits."""
    norm = case.operation
    if not isinstance(norm, Norm) or not norm.centred:
        return 1.0
    largest = 0.0
    for some in row_blocks(case):
        rows = norm.normalized(case.part(some))
        squares = (rows * rows).mean(axis=1)
        variance = np.square(rows - rows.mean(axis=1, keepdims=True)).mean(axis=1)
        largest = max(largest, float(np.sqrt(squares / (variance + case.eps)).max(initial=0.0)))
    return largest
