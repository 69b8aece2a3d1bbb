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
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat, InverseRoot, Term, round_ratio
from truenorm.verify.formulas.balls import Ball
from truenorm.verify.formulas.functions import FUNCTIONS, by_arbs, flint
from truenorm.verify.formulas.graph import Node, needed
from truenorm.verify.oracle import ONE, ExactNumber, LinearInRoot, NonFinite, SumOfRoots
from truenorm.verify.types import Array, Float64s

Objects = NDArray[np.object_]
Values = dict[Node, Any]
Axes = tuple[int, ...]
Mask = NDArray[np.bool_]


class IrrationalError(ArithmeticError):
    """A step has no exact number a + b*r."""


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
    if node.op == "index":
        return given[node.settings[0]].astype(np.intp)
    if node.op == "constant":
        return arithmetic.of(np.full(1, node.settings[0]))
    if node.op in FUNCTIONS:
        return arithmetic.function(node.op, *args)
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
    div: Callable[[Any, Any], Any] = staticmethod(operator.truediv)
    over: Callable[[Any, int], Any] = staticmethod(operator.truediv)
    abs: Callable[[Any], Any] = staticmethod(abs)
    inverse_root: Callable[[Any], Any] = staticmethod(lambda x: 1 / np.sqrt(x))
    function: Callable[[str, Any], Any] = staticmethod(lambda name, x: FUNCTIONS[name].floats(x))
    map: Callable[[Any, Callable[[Array], Array]], Any] = staticmethod(lambda x, change: change(x))
    where: Callable[[Mask, Any, Any], Any] = staticmethod(np.where)
    is_true: Callable[[Any], Mask] = staticmethod(lambda condition: condition > 0.5)

    @staticmethod
    def sum(x: Any, axes: Axes) -> Any:
        """Sum along axes, which stay."""
        return x.sum(axis=axes, keepdims=True)

    @staticmethod
    def largest(x: Any, axes: Axes) -> Any:
        """Return the largest element along axes, which stay."""
        return x.max(axis=axes, keepdims=True)

    @staticmethod
    def compare(x: Any, y: Any, how: str) -> Any:
        """Return 1 where a comparison is true, else 0."""
        return getattr(np, how)(x, y).astype(np.float64)

    @classmethod
    def select(cls, condition: Any, x: Any, y: Any) -> Any:
        """Return x where a condition is 1, else y."""
        return cls.where(cls.is_true(condition), x, y)

    @classmethod
    def power(cls, x: Any, exponent: int) -> Any:
        """Multiply by itself."""
        result = x
        for _ in range(exponent - 1):
            result = cls.mul(result, x)
        return result

    @classmethod
    def take(cls, x: Any, index: NDArray[np.intp], axis: int) -> Any:
        """Return the elements at an index."""
        return cls.map(x, lambda each: np.take_along_axis(each, index, axis))

    @classmethod
    def put(cls, x: Any, index: NDArray[np.intp], like: Any, axis: int) -> Any:
        """Return zeros with numbers at an index."""

        def among_zeros(each: Array) -> Array:
            zeros = np.zeros(like.shape, each.dtype)
            np.put_along_axis(zeros, index, each, axis)
            return zeros

        return cls.map(x, among_zeros)

    @classmethod
    def rotate_half(cls, x: Any, axis: int) -> Any:
        """Return the second half of an axis with the other sign, then the first half."""
        half = x.shape[axis] // 2
        swapped = cls.map(x, lambda each: np.roll(each, -half, axis=axis))
        negative = cls.sub(cls.of(np.zeros(1)), swapped)
        shape = [-1 if place == axis else 1 for place in range(len(x.shape))]
        return cls.where((np.arange(x.shape[axis]) < half).reshape(shape), negative, swapped)

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

    add = sub = mul = div = staticmethod(np.maximum)
    over = staticmethod(lambda x, _: x)
    abs = inverse_root = staticmethod(lambda x: x)
    function = staticmethod(lambda _, x: x)
    compare = staticmethod(lambda x, y, how: np.maximum(x, y))  # noqa: ARG005 (a keyword)
    select = staticmethod(lambda condition, x, y: np.maximum(np.maximum(condition, x), y))

    @staticmethod
    def of(values: Float64s) -> Any:
        """Return 1 for numbers that are not finite."""
        return (~np.isfinite(values)).astype(np.int8)

    @staticmethod
    def sum(x: Any, axes: Axes) -> Any:
        """Return 2 for a sum with such a number."""
        return np.where(x.any(axis=axes, keepdims=True), np.int8(2), np.int8(0))

    @classmethod
    def largest(cls, x: Any, axes: Axes) -> Any:
        """Return 2 for rows with such a number."""
        return cls.sum(x, axes)


def where_parts(mask: NDArray[np.bool_], x: Any, y: Any) -> Any:
    """Select numbers that consist of several arrays."""
    parts = ((getattr(x, each.name), getattr(y, each.name)) for each in fields(x))
    return type(x)(*(np.where(mask, one, other) for one, other in parts))


class Balls(Floats):
    """Arrays of `truenorm.verify.formulas.balls.Ball`."""

    of = staticmethod(Ball.of)
    div = staticmethod(lambda x, y: x * y.reciprocal())
    over = staticmethod(Ball.over)
    abs = staticmethod(lambda x: where_parts(x.high < 0, -x, x))
    inverse_root = staticmethod(Ball.inverse_root)
    function = staticmethod(by_arbs)
    map = staticmethod(Ball.map)
    where = staticmethod(where_parts)

    @staticmethod
    def sum(x: Ball, axes: Axes) -> Ball:
        """Sum along axes, which stay, by halves."""
        kept = [1 if place in axes else size for place, size in enumerate(x.shape)]
        summed = x.map(lambda each: along(each, axes)).sum(0)
        return summed.map(lambda each: each.reshape(kept))

    @staticmethod
    def largest(x: Ball, axes: Axes) -> Ball:
        """Return the largest of the centres: no number is further from its centre."""
        high = x.high.max(axis=axes, keepdims=True)
        low = np.where(x.high == high, x.low, -np.inf).max(axis=axes, keepdims=True)
        return Ball(high, low, x.radius.max(axis=axes, keepdims=True))

    @staticmethod
    def compare(x: Ball, y: Ball, how: str) -> Ball:
        """Return 1 or 0; the radius is NaN where balls do not decide."""
        apart = x - y
        same = (x.high == y.high) & (x.low == y.low)  # infinite ones, too
        centre = np.where(same, 0.0, apart.high)
        exact = same & (x.radius == 0) & (y.radius == 0)
        decided = exact | (np.abs(apart.high) > 2 * apart.radius)
        holds = getattr(np, how)(centre, 0.0).astype(np.float64)
        return Ball(holds, np.zeros_like(holds), np.where(decided, 0.0, np.nan))

    @classmethod
    def select(cls, condition: Ball, x: Ball, y: Ball) -> Ball:
        """Return x where a condition is 1, else y."""
        chosen = where_parts(condition.high > 0.5, x, y)
        return Ball(chosen.high, chosen.low, chosen.radius + condition.radius)


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
    def function(name: str, x: Objects) -> Objects:
        """Return a function of each number."""
        return _each(FUNCTIONS[name].arb, x)

    @staticmethod
    def largest(x: Objects, axes: Axes) -> Objects:
        """Return the largest element along axes, which stay."""
        kept = [1 if place in axes else size for place, size in enumerate(x.shape)]
        rows = along(x, axes)
        results = np.empty(rows.shape[1], object)
        for place, column in enumerate(rows.T.tolist()):
            results[place] = reduce(lambda one, other: one.max(other), column)
        return results.reshape(kept)

    @staticmethod
    def compare(x: Objects, y: Objects, how: str) -> Objects:
        """Return 1 or 0, or NaN where neither is certain."""
        module, true = flint(), getattr(operator, OPERATORS[how])
        false = getattr(operator, OPERATORS[OPPOSITE[how]])
        x, y = np.broadcast_arrays(x, y)
        results = np.empty(x.size, object)
        for place, (one, other) in enumerate(zip(x.flat, y.flat, strict=True)):
            certain = true(one, other), false(one, other)
            results[place] = module.arb(1.0 if certain[0] else 0.0 if certain[1] else math.nan)
        return results.reshape(x.shape)

    @staticmethod
    def is_true(condition: Objects) -> Mask:
        """Return where a condition is 1."""
        return np.array([each == 1 for each in condition.flat], bool).reshape(condition.shape)

    @classmethod
    def select(cls, condition: Objects, x: Objects, y: Objects) -> Objects:
        """Return x where a condition is 1, else y; NaN where it is neither."""
        chosen = np.where(cls.is_true(condition), x, y)
        unknown = np.array([each != each for each in condition.flat], bool)
        return np.where(unknown.reshape(condition.shape), flint().arb(math.nan), chosen)


OPERATORS = {"greater": "gt", "greater_equal": "ge", "equal": "eq", "less": "lt"}
OPERATORS |= {"less_equal": "le", "not_equal": "ne"}
OPPOSITE = {"greater": "less_equal", "greater_equal": "less", "equal": "not_equal"}
LARGEST_EXPONENT = 20_000
"""Numbers beyond two to this power are infinite in each type, and their inverses 0."""


def round_arb(ball: Any, target: FloatFormat, *, is_last: bool = False) -> float | None:
    """Return the number of a type that all of an arb rounds to, or None.

    At the last precision, return the even one of two neighbours.
    """
    if not ball.is_finite():
        return None
    ends = []
    for end in (ball.lower(), ball.upper()):
        mantissa, exponent = (int(each) for each in end.man_exp())
        if abs(exponent) > LARGEST_EXPONENT:
            exponent = int(math.copysign(LARGEST_EXPONENT, exponent))
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
    where = staticmethod(where_parts)

    @staticmethod
    def of(values: Float64s) -> Roots:
        """Return given numbers."""
        if not np.isfinite(values).all():
            raise IrrationalError
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
    def div(x: Roots, y: Roots) -> Roots:
        """Divide by rational numbers."""
        divisor = _rational(y)
        if not divisor.all():
            raise IrrationalError
        return Roots(x.a / divisor, x.b / divisor, x.w)

    @staticmethod
    def abs(x: Roots) -> Roots:
        """Return magnitudes of rational numbers."""
        return Roots(np.abs(_rational(x)), x.b, x.w)

    @staticmethod
    def largest(x: Roots, axes: Axes) -> Roots:
        """Return the largest of rational numbers along axes, which stay."""
        a = np.asarray(_rational(x).max(axis=axes, keepdims=True))
        return Roots(a, _zeros(a), _zeros(a))

    @staticmethod
    def compare(x: Roots, y: Roots, how: str) -> Roots:
        """Compare rational numbers."""
        holds = getattr(np, how)(_rational(x), _rational(y)).astype(np.float64)
        return Exact.of(holds)

    @staticmethod
    def is_true(condition: Roots) -> Mask:
        """Return where a condition is 1."""
        return np.asarray(condition.a == 1, bool)

    @staticmethod
    def function(*_: Any) -> Roots:
        """Raise IrrationalError: there is no exact number."""
        raise IrrationalError

    @staticmethod
    def inverse_root(x: Roots) -> Roots:
        """Return 1/sqrt of rational numbers."""
        _rational(x)
        b = _zeros(x.a) + Fraction(1)
        b[x.a == 0] = math.nan
        return Roots(_zeros(x.a), b, _or_one(x.a))


def _rational(x: Roots) -> Objects:
    """Return rational numbers."""
    if x.b.any():
        raise IrrationalError
    return x.a


def _zeros(like: Objects) -> Objects:
    return np.full(like.shape, Fraction(0), object)


def _or_one(w: Objects) -> Objects:
    """Return w, or 1 where it is 0."""
    return np.asarray(w + (w == 0))


def _product(p: Objects, q: Objects) -> Objects:
    """Multiply; most factors are 0, since inputs have no r and xhat has no rational part.

    0 times an undefined number is undefined.
    """
    if (p.any() and q.any()) or (p != p).any() or (q != q).any():
        return np.asarray(p * q)
    return np.full(np.broadcast_shapes(p.shape, q.shape), Fraction(0), object)


def _sum(p: Objects, q: Objects) -> Objects:
    """Add."""
    if p.any() and q.any():
        return np.asarray(p + q)
    return np.array(np.broadcast_arrays(p, q)[not p.any()])
