"""Arithmetics for formulas: float64, enclosures, exact numbers, and numbers of any precision.

`Balls` enclose all results at once, in double-double. Where a ball does not decide how to round,
`Exact` computes the same formula in numbers a + b*r with rational a and b, since r^2 is rational.
`Arbs` computes it to any precision where a gate makes results transcendental.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, InverseRoot, Term, round_ratio
from truenorm.verify.formulas.balls import Ball
from truenorm.verify.formulas.graph import Node, needed
from truenorm.verify.oracle import ONE, ExactNumber, LinearInRoot, NonFinite, SumOfRoots
from truenorm.verify.types import Array, Float64s

Objects = NDArray[np.object_]
Values = dict[Node, Any]
Axes = tuple[int, ...]
GATE_BITS = 160
"""The precision of a sigmoid that is stored in a ball: more than double-double has."""


def evaluate(
    outputs: Iterable[Node],
    arithmetic: type["Floats"],
    given: Mapping[str, Float64s],
    change: Callable[[Node, Any], Any] = lambda _, numbers: numbers,
) -> Values:
    """Return the numbers of outputs and of the steps that they depend on, each of them changed."""
    values: Values = {}
    for node in needed(*outputs):
        args = [values[each] for each in node.args]
        values[node] = change(node, result_of(node, args, arithmetic, given))
    return values


def result_of(
    node: Node, args: list[Any], arithmetic: type["Floats"], given: Mapping[str, Float64s]
) -> Any:
    """Return the numbers of a step, from those of its arguments."""
    if node.op == "given":
        return arithmetic.of(given[node.settings[0]])
    if node.op == "constant":
        return arithmetic.of(np.full(1, node.settings[0]))
    return getattr(arithmetic, node.op)(*args, *node.settings)


def count_along(shape: Sequence[int], axes: Axes, share: float = 1.0) -> int:
    """Return the number of elements along axes, of the last of which a share counts."""
    sizes = [shape[each] for each in axes]
    return math.prod([*sizes[:-1], *(part_of(each, share) for each in sizes[-1:])])


def part_of(size: int, share: float) -> int:
    """Return a share of a size, at least 1."""
    return max(1, int(size * share))


def _start(axis: int, size: int) -> tuple[slice, ...]:
    """Return the index of the first elements of an axis."""
    return (*(slice(None),) * axis, slice(size))


def along(array: Array, axes: Axes) -> Array:
    """Return an array of two axes: these, and all others."""
    moved = np.moveaxis(array, tuple(axes), range(len(axes)))
    return moved.reshape(math.prod(moved.shape[: len(axes)]), -1)


class Floats:
    """Float64 numbers, rounded in each operation; other arithmetics override what they need."""

    of: Callable[[Float64s], Any] = staticmethod(np.asarray)
    add: Callable[[Any, Any], Any] = staticmethod(operator.add)
    sub: Callable[[Any, Any], Any] = staticmethod(operator.sub)
    mul: Callable[[Any, Any], Any] = staticmethod(operator.mul)
    over: Callable[[Any, int], Any] = staticmethod(operator.truediv)
    inverse_root: Callable[[Any], Any] = staticmethod(lambda x: 1 / np.sqrt(x))
    sigmoid: Callable[[Any], Any] = staticmethod(lambda x: 1 / (1 + np.exp(-x)))
    map: Callable[[Any, Callable[[Array], Array]], Any] = staticmethod(lambda x, change: change(x))
    where: Callable[[NDArray[np.bool_], Any, Any], Any] = staticmethod(np.where)

    @staticmethod
    def sum(x: Any, axes: Axes) -> Any:
        """Sum along axes, which stay."""
        return x.sum(axis=axes, keepdims=True)

    @classmethod
    def mean(cls, x: Any, axes: Axes, share: float) -> Any:
        """Sum along axes, which stay, and divide: see `count_along`."""
        return cls.over(cls.sum(x, axes), count_along(x.shape, axes, share))

    @classmethod
    def first(cls, x: Any, axis: int, share: float) -> Any:
        """Return the first part of an axis, at least one element."""
        return cls.map(x, lambda each: each[_start(axis, part_of(each.shape[axis], share))])

    @classmethod
    def pad(cls, x: Any, like: Any, axis: int) -> Any:
        """Return zeros behind an axis, up to the size that it has in another array."""

        def with_zeros(each: Array) -> Array:
            before, behind = each.shape[:axis], each.shape[axis + 1 :]
            wider = np.zeros((*before, like.shape[axis], *behind), each.dtype)
            wider[_start(axis, each.shape[axis])] = each
            return wider

        return cls.map(x, with_zeros)

    @classmethod
    def spread(cls, x: Any, like: Any, axes: Axes, share: float) -> Any:
        """Divide by the number of elements along axes, and repeat for each element."""
        divided = cls.over(x, count_along(like.shape, axes, share))
        return cls.map(divided, lambda each: np.broadcast_to(each, like.shape))


class Special(Floats):
    """Where numbers depend on an input that is not finite: 1 by elements, 2 through a sum."""

    add = sub = mul = staticmethod(np.maximum)
    over = staticmethod(lambda x, _: x)
    inverse_root = sigmoid = staticmethod(lambda x: x)

    @staticmethod
    def of(values: Float64s) -> Any:
        """Return 1 for numbers that are not finite."""
        return (~np.isfinite(values)).astype(np.int8)

    @staticmethod
    def sum(x: Any, axes: Axes) -> Any:
        """Return 2 for a sum with such a number."""
        return np.where(x.any(axis=axes, keepdims=True), np.int8(2), np.int8(0))


def _where(mask: NDArray[np.bool_], x: Any, y: Any) -> Any:
    """Select numbers that consist of several arrays."""
    parts = ((getattr(x, each.name), getattr(y, each.name)) for each in fields(x))
    return type(x)(*(np.where(mask, one, other) for one, other in parts))


class Balls(Floats):
    """Arrays of `truenorm.verify.formulas.balls.Ball`."""

    of = staticmethod(Ball.of)
    over = staticmethod(Ball.over)
    inverse_root = staticmethod(Ball.inverse_root)
    map = staticmethod(Ball.map)
    where = staticmethod(_where)

    @staticmethod
    def sum(x: Ball, axes: Axes) -> Ball:
        """Sum along axes, which stay, by halves."""
        kept = [1 if place in axes else size for place, size in enumerate(x.shape)]
        summed = x.map(lambda each: along(each, axes)).sum(0)
        return summed.map(lambda each: each.reshape(kept))

    @staticmethod
    def sigmoid(x: Ball) -> Ball:
        """Return 1/(1 + exp(-x)), by an arb for each ball that differs from others."""
        module = flint()
        flat = np.stack([each.reshape(-1) for each in (x.high, x.low, x.radius)], axis=1)
        different, place = np.unique(flat.view("V24"), return_inverse=True)
        results = []
        with module.ctx.workprec(GATE_BITS):
            for high, low, radius in different.view(np.float64).reshape(-1, 3).tolist():
                value = _sigmoid(module.arb(high) + module.arb(low) + module.arb(0, radius))
                first = float(value.mid())
                rest = value - module.arb(first)
                second = float(rest.mid())
                # The distance of both floats from the true value, rounded up.
                left = float((rest - module.arb(second)).abs_upper()) * (1 + 2.0**-40)
                results.append((first, second, left + 2.0**-1060 if first < 2 else np.nan))
        columns = np.array(results).reshape(-1, 3)[place.reshape(-1)].T
        return Ball(*columns.reshape(3, *x.shape))


def flint() -> Any:
    """Return the module of python-flint, which gates need."""
    try:
        import flint as module
    except ImportError as missing:
        raise ValueError(
            "a gate needs the package python-flint: pip install 'truenorm[verify]'"
        ) from missing
    return module


def _sigmoid(z: Any) -> Any:
    return 1 / (1 + (-z).exp())


def _each(function: Callable[[Any], Any], values: Array) -> Objects:
    results = np.empty(values.size, object)
    for place, value in enumerate(values.reshape(-1).tolist()):
        results[place] = function(value)
    return results.reshape(values.shape)


class Arbs(Floats):
    """Balls of python-flint, at the precision of its context."""

    @staticmethod
    def of(values: Float64s) -> Objects:
        """Return given numbers."""
        return _each(flint().arb, values)

    @staticmethod
    def inverse_root(x: Objects) -> Objects:
        """Return 1/sqrt(x)."""
        return _each(lambda each: each.rsqrt(), x)

    @staticmethod
    def sigmoid(x: Objects) -> Objects:
        """Return 1/(1 + exp(-x))."""
        return _each(_sigmoid, x)


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
    """Numbers a + b*r with r = 1/sqrt(w): `a`, `b` and `w` are arrays of fractions.

    w is 0 in numbers without r. b is NaN where w would be 0: such numbers are undefined.
    """

    a: Objects
    b: Objects
    w: Objects

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the array."""
        return np.broadcast_shapes(self.a.shape, self.b.shape, self.w.shape)

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
            a = _sum(a, squares / _or_one(w))
        return Roots(a, _sum(_product(self.a, other.b), _product(self.b, other.a)), w)

    def _root(self, other: "Roots") -> Objects:
        return np.asarray(np.where(self.w == 0, other.w, self.w))

    def map(self, change: Callable[[Array], Array]) -> "Roots":
        """Reshape or select."""
        return Roots(*(change(np.broadcast_to(p, self.shape)) for p in (self.a, self.b, self.w)))

    def exact(self) -> list[ExactNumber]:
        """Return the numbers for rounding, in order."""
        parts = zip(*(each.reshape(-1).tolist() for each in (self.a, self.b, self.w)), strict=True)
        return [_number(*each) for each in parts]

    def column_sums(self, repeats: int) -> list[ExactNumber]:
        """Return the sum of each column, in which w may differ, times a factor."""
        roots: dict[Fraction, InverseRoot] = {}
        columns = (each.T.tolist() for each in (self.a, self.b, self.w))
        return [_sum_of(roots, repeats, *each) for each in zip(*columns, strict=True)]


def _number(a: Fraction, b: Fraction, w: Fraction) -> ExactNumber:
    if b != b:
        return NonFinite(math.nan)
    root = InverseRoot(w.numerator, w.denominator) if w else ONE
    shares = b.numerator * a.denominator, a.numerator * b.denominator
    return LinearInRoot(root, *shares, a.denominator * b.denominator)


def _sum_of(
    roots: dict[Fraction, InverseRoot],
    repeats: int,
    a: Iterable[Fraction],
    b: Iterable[Fraction],
    w: Iterable[Fraction],
) -> ExactNumber:
    """Return a sum of numbers; one term for each w."""
    shares: dict[Fraction, Fraction] = {}
    for each, of in zip(b, w, strict=True):
        if each:
            shares[of] = shares.get(of, Fraction(0)) + each
    if any(each != each for each in shares.values()):
        return NonFinite(math.nan)
    rational = sum(a, Fraction(0))
    terms = [Term(rational.numerator * repeats, rational.denominator, ONE)]
    for of, share in shares.items():
        root = roots.setdefault(of, InverseRoot(of.numerator, of.denominator))
        terms.append(Term(share.numerator * repeats, share.denominator, root))
    return SumOfRoots(terms)


class Exact(Floats):
    """Arrays of `Roots`, for formulas with one root in each unit and no gate."""

    map = staticmethod(Roots.map)
    where = staticmethod(_where)

    @staticmethod
    def of(values: Float64s) -> Roots:
        """Return given numbers."""
        a = _each(Fraction, values)
        return Roots(a, _zeros(a), _zeros(a))

    @staticmethod
    def sum(x: Roots, axes: Axes) -> Roots:
        """Sum along axes, which stay; all numbers along them have the same w, or none."""
        a, b = (each.sum(axis=axes, keepdims=True) for each in (x.a, x.b))
        return Roots(a, b, np.asarray(x.w.max(axis=axes, keepdims=True)))

    @staticmethod
    def over(x: Roots, count: int) -> Roots:
        """Divide by an integer."""
        return Roots(x.a / count, x.b / count, x.w)

    @staticmethod
    def inverse_root(x: Roots) -> Roots:
        """Return 1/sqrt of rational numbers."""
        b = _zeros(x.a) + Fraction(1)
        b[x.a == 0] = math.nan
        return Roots(_zeros(x.a), b, _or_one(x.a))


def _zeros(like: Objects) -> Objects:
    return np.full(like.shape, Fraction(0), object)


def _or_one(w: Objects) -> Objects:
    """Return w, or 1 where it is 0."""
    return np.asarray(w + (w == 0))


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
