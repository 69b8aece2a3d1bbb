"""Arithmetics for the formulas of a norm: float64, enclosures, and exact or refined numbers.

`Ball` encloses all results at once, in double-double. Where a ball does not decide how to round,
`Roots` computes the same formulas exactly in a + b*r with rational a and b, since r^2 is rational;
`Arbs` computes them to any precision where a gate makes results transcendental.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, InverseRoot, Term, round_ratio
from truenorm.verify.enclosures import Ball
from truenorm.verify.oracle import ONE, LinearInRoot, SumOfRoots
from truenorm.verify.types import Array, Float64s

Objects = NDArray[np.object_]
Reshape = Callable[[Any], Any]
GATE_BITS = 160
"""The precision of a sigmoid that is stored in a ball: more than double-double has."""


@dataclass(frozen=True)
class Floats:
    """Float64 numbers, rounded in each operation."""

    values: Float64s

    @classmethod
    def of(cls, values: Float64s) -> "Floats":
        """Return given numbers."""
        return cls(values)

    def __add__(self, other: "Floats") -> "Floats":
        """Add."""
        return Floats(self.values + other.values)

    def __sub__(self, other: "Floats") -> "Floats":
        """Subtract."""
        return Floats(self.values - other.values)

    def __mul__(self, other: "Floats") -> "Floats":
        """Multiply."""
        return Floats(self.values * other.values)

    def sum(self, axis: int) -> "Floats":
        """Sum along an axis, which stays."""
        return Floats(self.values.sum(axis=axis, keepdims=True))

    def over(self, count: int) -> "Floats":
        """Divide by an integer."""
        return Floats(self.values / count)

    def inverse_root(self) -> "Floats":
        """Return 1/sqrt."""
        return Floats(1 / np.sqrt(self.values))

    def map(self, change: Reshape) -> "Floats":
        """Reshape or select."""
        return Floats(change(self.values))

    def sigmoid(self) -> "Floats":
        """Return 1/(1 + exp(-z))."""
        return Floats(1 / (1 + np.exp(-self.values)))


def flint() -> Any:
    """Return the module of python-flint, which gates need."""
    try:
        import flint as module
    except ImportError as missing:
        raise ValueError(
            "a gate needs the package python-flint: pip install 'truenorm[verify]'"
        ) from missing
    return module


def sigmoid_of_balls(balls: Ball) -> Ball:
    """Return 1/(1 + exp(-z)) of balls, by an arb for each of them that differs from others."""
    module = flint()
    flat = np.stack([each.reshape(-1) for each in (balls.high, balls.low, balls.radius)], axis=1)
    different, place = np.unique(flat.view("V24"), return_inverse=True)
    parts = different.view(np.float64).reshape(-1, 3).T.tolist()
    highs, lows, radii = [], [], []
    with module.ctx.workprec(GATE_BITS):
        for high, low, radius in zip(*parts, strict=True):
            value = _sigmoid(module.arb(high) + module.arb(low) + module.arb(0, radius))
            first = float(value.mid())
            rest = value - module.arb(first)
            second = float(rest.mid())
            # The distance of both floats from the true value, rounded up.
            left = float((rest - module.arb(second)).abs_upper()) * (1 + 2.0**-40)
            highs.append(first)
            lows.append(second)
            radii.append(left + 2.0**-1060 if np.isfinite(first) else np.nan)
    results = np.array([highs, lows, radii])[:, place.reshape(-1)]
    return Ball(*results.reshape(3, *balls.high.shape))


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + (-z).exp())


@dataclass(frozen=True)
class Arbs:
    """Balls of python-flint, at the precision of its context."""

    values: Objects

    @classmethod
    def of(cls, values: Float64s) -> "Arbs":
        """Return given numbers."""
        return cls(_each(flint().arb, values))

    def __add__(self, other: "Arbs") -> "Arbs":
        """Add."""
        return Arbs(self.values + other.values)

    def __sub__(self, other: "Arbs") -> "Arbs":
        """Subtract."""
        return Arbs(self.values - other.values)

    def __mul__(self, other: "Arbs") -> "Arbs":
        """Multiply."""
        return Arbs(self.values * other.values)

    def sum(self, axis: int) -> "Arbs":
        """Sum along an axis, which stays."""
        return Arbs(np.asarray(self.values.sum(axis=axis, keepdims=True)))

    def over(self, count: int) -> "Arbs":
        """Divide by an integer."""
        return Arbs(self.values / count)

    def inverse_root(self) -> "Arbs":
        """Return 1/sqrt."""
        return Arbs(_each(lambda each: each.rsqrt(), self.values))

    def map(self, change: Reshape) -> "Arbs":
        """Reshape or select."""
        return Arbs(change(self.values))

    def sigmoid(self) -> "Arbs":
        """Return 1/(1 + exp(-z))."""
        return Arbs(_each(_sigmoid, self.values))


def _each(function: Callable[[Any], Any], values: Array) -> Objects:
    results = np.empty(values.size, object)
    for place, value in enumerate(values.reshape(-1).tolist()):
        results[place] = function(value)
    return results.reshape(values.shape)


def round_arb(ball: Any, target: FloatFormat, *, is_last: bool = False) -> float | None:
    """Return the number of a type that all of an arb rounds to, or None.

    At the last precision, return the even one of two neighbours.
    """
    if not ball.is_finite():
        return None
    ends = []
    for end in (ball.lower(), ball.upper()):
        mantissa, exponent = (int(each) for each in end.man_exp())
        ends.append(round_ratio(mantissa << max(0, exponent), 1 << max(0, -exponent), target))
    if ends[0] == ends[1]:
        return ends[0]
    if not is_last or not np.isfinite(ends).all():
        return None
    middle = (Fraction(ends[0]) + Fraction(ends[1])) / 2
    return round_ratio(*middle.as_integer_ratio(), target)


@dataclass(frozen=True)
class Roots:
    """Numbers a + b*r of units with r = 1/sqrt(w): `a`, `b` and `w` are arrays of fractions."""

    a: Objects
    b: Objects
    w: Objects

    @classmethod
    def of(cls, values: Float64s) -> "Roots":
        """Return given numbers."""
        a = _each(Fraction, values)
        return cls(a, _zeros(a), _zeros(a))

    def __add__(self, other: "Roots") -> "Roots":
        """Add."""
        return Roots(_sum(self.a, other.a), _sum(self.b, other.b), self._root(other))

    def __sub__(self, other: "Roots") -> "Roots":
        """Subtract."""
        return Roots(_sum(self.a, -other.a), _sum(self.b, -other.b), self._root(other))

    def __mul__(self, other: "Roots") -> "Roots":
        """Multiply: r^2 is 1/w."""
        w = self._root(other)
        a, squares = _product(self.a, other.a), _product(self.b, other.b)
        if squares.any():
            a = _sum(a, squares / np.where(w == 0, _zeros(w) + Fraction(1), w))
        return Roots(a, _sum(_product(self.a, other.b), _product(self.b, other.a)), w)

    def _root(self, other: "Roots") -> Objects:
        """Return w, which is 0 in numbers without r."""
        return np.asarray(np.where(self.w == 0, other.w, self.w))

    def sum(self, axis: int) -> "Roots":
        """Sum along an axis, which stays; all numbers along it have the same w, or none."""
        a, b = (each.sum(axis=axis, keepdims=True) for each in (self.a, self.b))
        return Roots(a, b, np.asarray(self.w.max(axis=axis, keepdims=True)))

    def over(self, count: int) -> "Roots":
        """Divide by an integer."""
        return Roots(self.a / count, self.b / count, self.w)

    def inverse_root(self) -> "Roots":
        """Return 1/sqrt of rational numbers."""
        return Roots(_zeros(self.a), _zeros(self.a) + Fraction(1), self.a)

    def map(self, change: Reshape) -> "Roots":
        """Reshape or select."""
        return Roots(change(self.a), change(self.b), change(self.w))

    def exact(self) -> list[LinearInRoot]:
        """Return the numbers for rounding, in order."""
        numbers = []
        for a, b, w in zip(*(each.reshape(-1) for each in (self.a, self.b, self.w)), strict=True):
            root = InverseRoot(w.numerator, w.denominator) if w else ONE
            common = a.denominator * b.denominator
            numbers.append(
                LinearInRoot(
                    root, b.numerator * a.denominator, a.numerator * b.denominator, common
                )
            )
        return numbers

    def column_sums(self, repeats: int) -> list[SumOfRoots]:
        """Return the sum of each column, in which w may differ, times a factor."""
        sums = []
        roots: dict[Fraction, InverseRoot] = {}
        for column in range(self.a.shape[1]):
            parts = (each[:, column].tolist() for each in (self.a, self.b, self.w))
            shares: dict[Fraction, Fraction] = {}
            rational = Fraction(0)
            for a, b, w in zip(*parts, strict=True):
                rational += a
                if b:
                    shares[w] = shares.get(w, Fraction(0)) + b
            terms = [Term(rational.numerator * repeats, rational.denominator, ONE)]
            for w, b in shares.items():
                root = roots.setdefault(w, InverseRoot(w.numerator, w.denominator))
                terms.append(Term(b.numerator * repeats, b.denominator, root))
            sums.append(SumOfRoots(terms))
        return sums


def _zeros(like: Objects) -> Objects:
    return np.full(like.shape, Fraction(0), object)


def _product(p: Objects, q: Objects) -> Objects:
    """Multiply; most factors are 0, since inputs have no r and xhat has no rational part."""
    if p.any() and q.any():
        return np.asarray(p * q)
    return np.full(np.broadcast_shapes(p.shape, q.shape), Fraction(0), object)


def _sum(p: Objects, q: Objects) -> Objects:
    """Add."""
    if p.any() and q.any():
        return np.asarray(p + q)
    return np.array(np.broadcast_arrays(p, q)[not p.any()])
