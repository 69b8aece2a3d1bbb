"""A number of the form that results have, rounded once and exactly, and what that left over."""

from collections.abc import Callable
from functools import partial
from math import copysign, frexp, isfinite, ldexp
from typing import NamedTuple

from truenorm.exact import FLOAT64, FloatFormat, Term, round_sum_of_roots
from truenorm.exact.roots import InverseRoot

__all__ = ["ONE", "Rounded", "rounded_line", "rounded_sum"]

ONE = InverseRoot(1, 1)


class Rounded(NamedTuple):
    """A correctly rounded value; exact = value + rest*ulp(value), and |rest| <= 1/2.

    Whether rest is 0, 1/2 or neither is exact; else it may be off by a rounding of float64 at the
    value, 2**-30 for float32.
    """

    value: float
    rest: float


def _place(value: float, target: FloatFormat) -> int:
    """Return the exponent of an ulp at a finite value."""
    return max(frexp(value)[1] - target.precision, target.quantum) if value else target.quantum


def _told_by_float64(
    rounded_to: Callable[[FloatFormat], float], target: FloatFormat
) -> Rounded | None:
    """Round again what was rounded to float64, where that is the same as rounding once.

    Numbers of a narrower type, and the points half way between them, are float64 numbers. So the
    exact answer is on the same side of each as its rounding to float64, unless that is one of
    them.
    """
    if target.precision >= FLOAT64.precision:
        return None
    wide = rounded_to(FLOAT64)
    if not abs(wide) < ldexp(1.0, target.limit - 1):
        return None  # near the largest number, or beyond
    # From here on nothing is rounded but by `round`: float64 has the digits to spare.
    place = _place(wide, target)
    value = copysign(ldexp(round(ldexp(wide, -place)), place), wide)
    rest = ldexp(wide - value, -_place(value, target))
    return None if rest in (0.0, 0.5, -0.5) else Rounded(value, rest)


def _ratio(value: float, target: FloatFormat) -> tuple[int, int, int, int]:
    """Return a finite value as over/under, and up, down: multiplied by 2**up/2**down is in ulp."""
    place = _place(value, target)
    return *value.as_integer_ratio(), max(0, -place), max(0, place)


def _rounded(
    rounded_to: Callable[[FloatFormat], float],
    left_over: Callable[[int, int, int, int], float],
    target: FloatFormat,
) -> Rounded:
    """Round a number, given how, and how to round what a ratio leaves over of it."""
    told = _told_by_float64(rounded_to, target)
    if told is not None:
        return told
    value = rounded_to(target)
    return Rounded(value, left_over(*_ratio(value, target)) if isfinite(value) else 0.0)


def rounded_line(
    root: InverseRoot, a: int, b: int, denominator: int, target: FloatFormat
) -> Rounded:
    """Round (a*r + b)/denominator."""

    def left_over(over: int, under: int, up: int, down: int) -> float:
        left = (a * under << up, (b * under - over * denominator) << up)
        return root.round_linear(*left, denominator * under << down, FLOAT64)

    return _rounded(partial(root.round_linear, a, b, denominator), left_over, target)


def rounded_sum(terms: list[Term], target: FloatFormat) -> Rounded:
    """Round a sum of roots."""

    def left_over(over: int, under: int, up: int, down: int) -> float:
        left = [
            Term(term.numerator << up, term.denominator << down, term.root)
            for term in [*terms, Term(-over, under, ONE)]
        ]
        return round_sum_of_roots(left, FLOAT64)

    return _rounded(partial(round_sum_of_roots, terms), left_over, target)
