"""One row of layer norm or RMSNorm in exact fractions, without code of the package.

All of a row is rational except r = 1/sqrt(w), a factor of dx, of J and of xhat. So each function
returns its result without the factor r. The three forms of dx share only the row.
"""

from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Vector = list[Fraction]


def fractions(values: NDArray[np.floating] | list[float]) -> Vector:
    return [Fraction(float(value)) for value in values]


def mean(values: Vector) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def dot(left: Vector, right: Vector) -> Fraction:
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


@dataclass(frozen=True)
class ExactRow:
    """A row x, centred as in (D2), and w = var + eps of (D4); or not, (D25)."""

    c: Vector
    w: Fraction

    @classmethod
    def of(cls, x: Vector, eps: Fraction, *, centred: bool = True) -> "ExactRow":
        mu = mean(x) if centred else Fraction(0)
        c = [value - mu for value in x]
        return cls(c, mean([value * value for value in c]) + eps)

    def rstd(self) -> Fraction:
        """1/sqrt(w) to 60 digits."""
        with localcontext(prec=60):
            root = (Decimal(self.w.numerator) / Decimal(self.w.denominator)).sqrt()
            return Fraction(1 / root)

    def dx_step_by_step(self, g: Vector) -> Vector:
        """(D14), through the gradients of the variance (D11) and of the mean (D13)."""
        size = len(self.c)
        dvar = -dot(g, self.c) / (2 * self.w)
        dmean = -sum(g, Fraction(0)) + dvar * (-2 * mean(self.c))
        return [
            g_i + dvar * 2 * c_i / size + dmean / size for g_i, c_i in zip(g, self.c, strict=True)
        ]

    def dx_compact(self, g: Vector) -> Vector:
        """(D17); xhat*mean(g*xhat) is c*mean(g*c)/w."""
        mean_g = mean(g)
        slope = mean([a * b for a, b in zip(g, self.c, strict=True)]) / self.w
        return [g_i - mean_g - c_i * slope for g_i, c_i in zip(g, self.c, strict=True)]

    def dx_uncentred(self, g: Vector) -> Vector:
        """(D29), of RMSNorm, where c is x."""
        slope = dot(g, self.c) / len(g) / self.w
        return [g_i - c_i * slope for g_i, c_i in zip(g, self.c, strict=True)]

    def tangent_uncentred(self, t: Vector) -> Vector:
        """Differentiate xhat of RMSNorm along t, line by line."""
        dw = 2 * dot(self.c, t) / len(t)
        return [t_i - c_i * dw / (2 * self.w) for t_i, c_i in zip(t, self.c, strict=True)]

    def jacobian(self) -> list[Vector]:
        """(D18), all D*D elements of it."""
        size = len(self.c)
        return [
            [Fraction(i == j) - Fraction(1, size) - c_i * c_j / (size * self.w)
             for i, c_i in enumerate(self.c)]
            for j, c_j in enumerate(self.c)
        ]  # fmt: skip

    def tangent(self, t: Vector) -> Vector:
        """Differentiate xhat along t, line by line of forward."""
        dmean = mean(t)
        dc = [t_i - dmean for t_i in t]
        dvar = 2 * mean([a * b for a, b in zip(self.c, dc, strict=True)])
        return [dc_i - c_i * dvar / (2 * self.w) for dc_i, c_i in zip(dc, self.c, strict=True)]


def _exact_rows(x: NDArray[np.floating], eps: float) -> list[ExactRow]:
    return [ExactRow.of(fractions(row), Fraction(eps)) for row in x]


def exact_y(
    x: NDArray[np.floating], gamma: NDArray[np.floating], beta: NDArray[np.floating], eps: float
) -> list[Vector]:
    """Return y, to 60 digits."""
    scale, shift = fractions(gamma), fractions(beta)
    rows = []
    for row in _exact_rows(x, eps):
        r = row.rstd()
        rows.append([g * c * r + b for g, c, b in zip(scale, row.c, shift, strict=True)])
    return rows


def exact_dx(
    x: NDArray[np.floating], gamma: NDArray[np.floating], dy: NDArray[np.floating], eps: float
) -> list[Vector]:
    """Return dx, to 60 digits."""
    scale = fractions(gamma)
    rows = []
    for row, dy_row in zip(_exact_rows(x, eps), dy, strict=True):
        g = [a * b for a, b in zip(scale, fractions(dy_row), strict=True)]
        r = row.rstd()
        rows.append([value * r for value in row.dx_compact(g)])
    return rows


def exact_dgamma(x: NDArray[np.floating], dy: NDArray[np.floating], eps: float) -> Vector:
    """Return dgamma, to 60 digits of each term."""
    total = [Fraction(0)] * x.shape[1]
    for row, dy_row in zip(_exact_rows(x, eps), dy, strict=True):
        r = row.rstd()
        terms = zip(total, row.c, fractions(dy_row), strict=True)
        total = [sum_ + dy_j * c * r for sum_, c, dy_j in terms]
    return total
