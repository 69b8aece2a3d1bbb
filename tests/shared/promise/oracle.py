"""The oracle: both norms and their gradients, correctly rounded, without code of the package.

Two routes share only the rounding. First come the formulas as written, in ball arithmetic (arb of
python-flint), at two precisions: an element is decided if both ends of its ball round to the same
bits. The others may be ties or exact zeros, which no ball can decide. For them the coefficients
of A/sqrt(w) + B are exact rationals, so that only square roots are refined; if the roots are
rational or cancel, the result is rounded as a rational.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, isnan, nan
from typing import Any

import ml_dtypes
import numpy as np
from flint import arb, ctx, fmpq, fmpz
from numpy.typing import NDArray

Array = NDArray[Any]
Columns = Sequence[int]

# Every number of the four types is an integer multiple of this power of two.
UNIT_EXPONENT = -1074
# 128 bits decide nearly all ordinary data; elements undecided at 256 bits are usually exact.
BALL_PRECISIONS = (128, 256)


@dataclass(frozen=True)
class Format:
    """A binary interchange format. Rounding is to nearest, ties to even, and returns the bits."""

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

    def round_dyadic(self, mantissa: int, exponent: int) -> int:
        """Round mantissa * 2^exponent."""
        sign, mantissa = (self.minus, -mantissa) if mantissa < 0 else (0, mantissa)
        quantum = max(exponent + mantissa.bit_length() - self.precision, self.quantum)
        dropped = quantum - exponent
        if dropped <= 0:
            significand = mantissa << -dropped
        else:
            significand = mantissa >> dropped
            twice_rest = (mantissa - (significand << dropped)) << 1
            one = 1 << dropped
            if twice_rest > one or (twice_rest == one and significand & 1):
                significand += 1
        # The leading bit of a normal number, and a carry into it, increment the exponent field.
        magnitude = (
            ((quantum - self.quantum) << (self.precision - 1)) + significand if mantissa else 0
        )
        return sign | min(magnitude, self.infinity)

    def round_rational(self, value: fmpq) -> int:
        numerator, denominator = int(value.p), int(value.q)
        # A quotient two bits longer than the format, and a sticky bit.
        shift = max(0, self.precision + 2 + denominator.bit_length() - abs(numerator).bit_length())
        quotient, rest = divmod(abs(numerator) << shift, denominator)
        sticky = quotient << 1 | (rest != 0)
        return self.round_dyadic(-sticky if numerator < 0 else sticky, -shift - 1)

    def round_ball(self, ball: arb) -> int | None:
        """Round the ball; return None if its ends round to different bits."""
        if not ball.is_finite():
            return None
        (low, low_exponent), (high, high_exponent) = (
            ball.lower().man_exp(),
            ball.upper().man_exp(),
        )
        # -0 and +0 have different bits, so a ball around zero is decided only if it is zero.
        bits_low = self.round_dyadic(int(low), int(low_exponent))
        bits_high = self.round_dyadic(int(high), int(high_exponent))
        return bits_low if bits_low == bits_high else None

    def special(self, value: float) -> int:
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
    """Return bit patterns, for comparisons: NaN != NaN and -0 == +0."""
    return np.ascontiguousarray(array).view(FORMATS[array.dtype].storage)


def rational(value: float) -> fmpq:
    return fmpq(*value.as_integer_ratio())


class RootBasis:
    """1/sqrt(w) of several rational w, as rational multiples of independent square roots.

    Rows belong together when the product of their w is a rational square. Square roots of
    different classes are linearly independent over the rationals (Besicovitch 1940), so a sum is
    rational only if the coefficient of every class but that of w = 1 is zero.
    """

    def __init__(self, squares: Sequence[fmpq]) -> None:
        self.representatives = [fmpq(1)]
        self.members: list[tuple[int, fmpq]] = []
        kernels = [fmpz(1)]  # p*q of w = p/q: the same up to squares, and an integer
        for w in squares:
            kernel = w.p * w.q
            for index, other in enumerate(kernels):
                if (kernel * other).is_square():
                    ratio = (self.representatives[index] / w).sqrt()
                    self.members.append((index, ratio))
                    break
            else:
                self.members.append((len(kernels), fmpq(1)))
                kernels.append(kernel)
                self.representatives.append(w)

    def round(self, into: Format, constant: fmpq, coefficients: Sequence[fmpq]) -> int:
        """Round constant + sum of coefficient/sqrt(w)."""
        totals = [constant] + [fmpq(0)] * (len(self.representatives) - 1)
        for (index, ratio), coefficient in zip(self.members, coefficients, strict=True):
            totals[index] += ratio * coefficient
        terms = [(a, w) for a, w in zip(totals, self.representatives, strict=True) if a != 0]
        if all(w == 1 for _, w in terms):
            return into.round_rational(totals[0])
        precision = 256
        while True:  # terminates: the value is irrational, hence no tie
            with ctx.workprec(precision):
                rounded = into.round_ball(sum((arb(a) * arb(w).rsqrt() for a, w in terms), arb(0)))
            if rounded is not None:
                return rounded
            precision *= 2


class BallRow:
    """A row of x in balls, at the current precision."""

    def __init__(self, x: Sequence[float], eps: float, *, centred: bool = True) -> None:
        balls = [arb(value) for value in x]
        self.centred = centred
        self.c = balls
        if centred:
            mean = sum(balls, arb(0)) / len(x)
            self.c = [value - mean for value in balls]
        self.r = (sum((c * c for c in self.c), arb(0)) / len(x) + arb(eps)).rsqrt()

    def y(self, gamma: Sequence[float], beta: Sequence[float], columns: Columns) -> list[arb]:
        c, r = self.c, self.r
        return [arb(gamma[j]) * (c[j] * r) + arb(beta[j]) for j in columns]

    def dx(self, gamma: Sequence[float], dy: Sequence[float], columns: Columns) -> list[arb]:
        xhat, r = [c * self.r for c in self.c], self.r
        g = [arb(a) * arb(b) for a, b in zip(gamma, dy, strict=True)]
        mean_g = sum(g, arb(0)) / len(g) if self.centred else arb(0)
        slope = sum((a * b for a, b in zip(g, xhat, strict=True)), arb(0)) / len(g)
        return [r * (g[j] - mean_g - xhat[j] * slope) for j in columns]


class ExactRow:
    """A row of x in rationals, computed on first use."""

    def __init__(self, x: Sequence[float], eps: float, *, centred: bool = True) -> None:
        self.x, self.eps, self.centred = x, eps, centred
        finite = all(map(isfinite, x))
        # r = 0: xhat is 0, or NaN for an infinite element.
        self.infinite = not centred and not finite and not any(map(isnan, x))
        # All results of an undefined row are NaN.
        self.undefined = not finite or (eps == 0 and (min(x) == max(x) if centred else not any(x)))
        self.undefined &= not self.infinite

    @cached_property
    def mean_and_w(self) -> tuple[fmpq, fmpq]:
        ratios = [value.as_integer_ratio() for value in self.x]
        unit = max(denominator for _, denominator in ratios)
        scaled = [fmpz(numerator * (unit // denominator)) for numerator, denominator in ratios]
        size, total = len(scaled), sum(scaled, fmpz(0)) if self.centred else fmpz(0)
        squares = size * sum((value * value for value in scaled), fmpz(0)) - total * total
        return fmpq(total, size * unit), fmpq(squares, (size * unit) ** 2) + rational(self.eps)

    def balls(self) -> BallRow:
        """Return the row in balls, at the current precision."""
        return BallRow(self.x, self.eps, centred=self.centred)

    @cached_property
    def basis(self) -> RootBasis:
        return RootBasis([self.w])

    @property
    def w(self) -> fmpq:
        return self.mean_and_w[1]

    def c(self, j: int) -> fmpq:
        return rational(self.x[j]) - self.mean_and_w[0]

    def sign(self, j: int) -> float:
        """Return the sign of xhat."""
        if self.infinite:
            return 0.0 if isfinite(self.x[j]) else nan
        c = self.c(j)
        return float((c > 0) - (c < 0))

    def gradient(self, gamma: Sequence[float], dy: Sequence[float]) -> Callable[[int], fmpq]:
        """Return the function j -> dx_j * sqrt(w)."""
        g = [rational(a) * rational(b) for a, b in zip(gamma, dy, strict=True)]
        mean_g = sum(g, fmpq(0)) / len(g) if self.centred else fmpq(0)
        moment = sum((a * rational(b) for a, b in zip(g, self.x, strict=True)), fmpq(0)) / len(g)
        slope = (moment - mean_g * self.mean_and_w[0]) / self.w
        return lambda j: g[j] - mean_g - self.c(j) * slope


def _round_columns(
    into: Format,
    columns: Columns,
    balls: Callable[[Columns], list[arb]],
    exactly: Callable[[int], int],
) -> dict[int, int]:
    """Round one number per column: by balls first, and exactly where they do not decide."""
    patterns: dict[int, int] = {}
    pending = columns
    for precision in BALL_PRECISIONS:
        with ctx.workprec(precision):
            rounded = list(map(into.round_ball, balls(pending))) if pending else []
        decided = zip(pending, rounded, strict=True)
        patterns |= {j: value for j, value in decided if value is not None}
        pending = [j for j in pending if j not in patterns]
    return patterns | {j: exactly(j) for j in pending}


def _rows(array: Array) -> list[list[float]]:
    with np.errstate(all="ignore"):  # of signalling NaN
        return array.astype(np.float64).tolist()  # type: ignore[no-any-return]


def _parameter(array: Array | None, size: int, default: float) -> list[float]:
    return [default] * size if array is None else _rows(array[np.newaxis])[0]


def _select(x: Array, eps: float, columns: Columns | None) -> Columns:
    if x.ndim != 2 or x.shape[1] == 0 or not 0 <= eps < float("inf"):
        raise ValueError(f"shape {x.shape}, eps {eps}: no such normalization")
    return range(x.shape[1]) if columns is None else [int(j) for j in columns]


def _assemble(rows: list[list[int]], columns: Columns, dtype: np.dtype[Any]) -> Array:
    patterns = np.array(rows, FORMATS[dtype].storage).reshape(len(rows), len(columns))
    return patterns.view(dtype)


def correct_forward(
    x: Array,
    gamma: Array | None,
    beta: Array | None,
    eps: float,
    columns: Columns | None = None,
    *,
    centred: bool = True,
) -> Array:
    """Return y, or only some columns of it. RMSNorm is not centred, and has no beta."""
    selected, into = _select(x, eps, columns), FORMATS[x.dtype]
    scale, shift = _parameter(gamma, x.shape[1], 1.0), _parameter(beta, x.shape[1], 0.0)
    finite = [j for j in selected if isfinite(scale[j]) and isfinite(shift[j])]

    def row_of_y(values: list[float]) -> list[int]:
        row = ExactRow(values, eps, centred=centred)
        if row.undefined:
            return [into.nan] * len(selected)
        if row.infinite:
            is_zero = {j: isfinite(values[j]) and isfinite(scale[j]) for j in selected}
            return [0 if is_zero[j] else into.nan for j in selected]
        patterns = _round_columns(
            into,
            finite,
            lambda pending: row.balls().y(scale, shift, pending),
            lambda j: row.basis.round(into, rational(shift[j]), [rational(scale[j]) * row.c(j)]),
        )
        for j in set(selected).difference(finite):
            patterns[j] = into.special(scale[j] * row.sign(j) + shift[j])
        return [patterns[j] for j in selected]

    return _assemble([row_of_y(values) for values in _rows(x)], selected, x.dtype)


def _correct_dx(
    row: ExactRow, scale: list[float], dy: list[float], selected: Columns, into: Format
) -> list[int]:
    # g is a product of exact numbers: it is finite if both factors are.
    finite = all(map(isfinite, scale)) and all(map(isfinite, dy))
    if row.undefined or row.infinite or not finite:
        return [into.nan] * len(selected)
    exact: list[Callable[[int], fmpq]] = []

    def exactly(j: int) -> int:
        if not exact:
            exact.append(row.gradient(scale, dy))
        return row.basis.round(into, fmpq(0), [exact[0](j)])

    patterns = _round_columns(
        into, selected, lambda pending: row.balls().dx(scale, dy, pending), exactly
    )
    return [patterns[j] for j in selected]


def _correct_dgamma(
    rows: list[ExactRow], dys: list[list[float]], selected: Columns, into: Format
) -> list[int]:
    if any(row.undefined for row in rows):
        return [into.nan] * len(selected)
    pairs = [(row, dy) for row, dy in zip(rows, dys, strict=True) if not row.infinite]
    non_finite = {j for row in rows if row.infinite for j in selected if not isfinite(row.x[j])}

    def balls(pending: Columns) -> list[arb]:
        sums = [arb(0)] * len(pending)
        for row, dy in pairs:
            ball = row.balls()
            terms = ((arb(dy[j]) * (ball.c[j] * ball.r)) for j in pending)
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
        return sums

    bases: list[RootBasis] = []

    def exactly(j: int) -> int:
        if not bases:
            bases.append(RootBasis([row.w for row, _ in pairs]))
        terms = [rational(dy[j]) * row.c(j) for row, dy in pairs]
        return bases[0].round(into, fmpq(0), terms)

    finite = [j for j in selected if j not in non_finite and all(isfinite(dy[j]) for dy in dys)]
    patterns = _round_columns(into, finite, balls, exactly)
    for j in set(selected).difference(finite):
        # All other terms are finite.
        terms = [
            dy[j] * row.sign(j)
            for row, dy in zip(rows, dys, strict=True)
            if not isfinite(dy[j]) or row.infinite
        ]
        patterns[j] = into.special(sum(terms))
    return [patterns[j] for j in selected]


def _correct_dbeta(dys: list[list[float]], selected: Columns, into: Format) -> list[int]:
    result = []
    for j in selected:
        special = [dy[j] for dy in dys if not isfinite(dy[j])]
        if special:
            result.append(into.special(sum(special)))
            continue
        ratios = [dy[j].as_integer_ratio() for dy in dys]
        total = sum((a << -UNIT_EXPONENT) // b for a, b in ratios)
        result.append(into.round_dyadic(total, UNIT_EXPONENT))
    return result


def correct_backward(
    dy: Array,
    x: Array,
    gamma: Array | None,
    beta: Array | None,
    eps: float,
    columns: Columns | None = None,
    *,
    centred: bool = True,
) -> tuple[Array, Array | None, Array | None]:
    """Return dx, dgamma and dbeta, or only some columns of each."""
    selected, dys = _select(x, eps, columns), _rows(dy)
    scale = _parameter(gamma, x.shape[1], 1.0)
    rows = [ExactRow(values, eps, centred=centred) for values in _rows(x)]
    dx = [
        _correct_dx(row, scale, dy_row, selected, FORMATS[x.dtype])
        for row, dy_row in zip(rows, dys, strict=True)
    ]
    dgamma = dbeta = None
    if gamma is not None:
        patterns = _correct_dgamma(rows, dys, selected, FORMATS[gamma.dtype])
        dgamma = _assemble([patterns], selected, gamma.dtype)[0]
    if beta is not None:
        patterns = _correct_dbeta(dys, selected, FORMATS[beta.dtype])
        dbeta = _assemble([patterns], selected, beta.dtype)[0]
    return _assemble(dx, selected, x.dtype), dgamma, dbeta
