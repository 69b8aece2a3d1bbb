"""One row twice over: in balls, which settle almost everything, and in exact rationals."""

from collections.abc import Callable, Sequence
from functools import cached_property
from math import isfinite, isnan, nan

import numpy as np
from flint import arb, ctx, fmpq, fmpz

from promise.families import Case
from promise.formats import Format

Columns = Sequence[int]


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
            return into.of_rational(totals[0])
        precision = 256
        while True:  # the value is irrational, hence no tie: this ends
            with ctx.workprec(precision):
                settled = into.of_ball(sum((arb(a) * arb(w).rsqrt() for a, w in terms), arb(0)))
            if settled is not None:
                return settled
            precision *= 2


class BallRow:
    """A row of x in balls, at the precision that is set."""

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


def ball_results(case: Case, rows: Sequence[BallRow], output: str) -> list[arb]:
    """Return an output where it is to be looked at, from the rows of x in balls."""
    columns = range(case.x.shape[1]) if case.columns is None else case.columns
    gamma, beta, dys = (array.astype(np.float64).tolist() for array in (*case.parameters, case.dy))
    if output == "y":
        return [value for row in rows for value in row.y(gamma, beta, columns)]
    pairs = list(zip(rows, dys, strict=True))
    if output == "dx":
        return [value for row, dy in pairs for value in row.dx(gamma, dy, columns)]
    if output == "dbeta":
        return [sum((arb(dy[j]) for dy in dys), arb(0)) for j in columns]
    return [sum((arb(dy[j]) * row.c[j] * row.r for row, dy in pairs), arb(0)) for j in columns]


class ExactRow:
    """A row of x in rationals, with what is needed of it worked out when it is first needed."""

    def __init__(self, x: Sequence[float], eps: float, *, centred: bool = True) -> None:
        self.x, self.eps, self.centred = x, eps, centred
        finite = all(map(isfinite, x))
        # r = 0: an element has the xhat 0, or NaN if it is infinite.
        self.infinite = not centred and not finite and not any(map(isnan, x))
        # A row that has no normalization: its results are NaN.
        self.bad = not finite or (eps == 0 and (min(x) == max(x) if centred else not any(x)))
        self.bad &= not self.infinite

    @cached_property
    def mean_and_w(self) -> tuple[fmpq, fmpq]:
        ratios = [value.as_integer_ratio() for value in self.x]
        unit = max(denominator for _, denominator in ratios)
        scaled = [fmpz(numerator * (unit // denominator)) for numerator, denominator in ratios]
        size, total = len(scaled), sum(scaled, fmpz(0)) if self.centred else fmpz(0)
        squares = size * sum((value * value for value in scaled), fmpz(0)) - total * total
        return fmpq(total, size * unit), fmpq(squares, (size * unit) ** 2) + rational(self.eps)

    def balls(self) -> BallRow:
        """Return the row in balls, at the precision that is set."""
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
        """Return the function that gives dx_j * sqrt(w)."""
        g = [rational(a) * rational(b) for a, b in zip(gamma, dy, strict=True)]
        mean_g = sum(g, fmpq(0)) / len(g) if self.centred else fmpq(0)
        moment = sum((a * rational(b) for a, b in zip(g, self.x, strict=True)), fmpq(0)) / len(g)
        slope = (moment - mean_g * self.mean_and_w[0]) / self.w
        return lambda j: g[j] - mean_g - self.c(j) * slope
