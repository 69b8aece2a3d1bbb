"""The exact answers to a case: each result correctly rounded, and what the rounding left over.

With x, dy, gamma and beta as the binary numbers they are, r = 1/sqrt(w) is the only irrational
number of a row (docs/derivation.md, D4), so that `truenorm.exact` rounds every result once and
exactly. What it rounds is written out here again, from the definitions.
"""

from collections.abc import Sequence
from functools import cache
from math import frexp, isfinite, ldexp
from typing import NamedTuple

import numpy as np

from truenorm.exact import (
    FLOAT64,
    ExactRow,
    FloatFormat,
    RowGradient,
    Term,
    centred_signs,
    round_ratio,
    round_sum_of_roots,
    scaled_integers,
)
from truenorm.exact.roots import InverseRoot
from truenorm.verify.bounds import Scales
from truenorm.verify.inputs import Case
from truenorm.verify.record import OUTPUTS
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of, unit_roundoff

__all__ = ["Expected", "expected"]

ONE = InverseRoot(1, 1)
NOT_A_NUMBER = float("nan")


class Rounded(NamedTuple):
    """A correctly rounded value; exact = value + rest*ulp(value), and |rest| <= 1/2.

    Whether rest is 0, 1/2 or neither is exact; else it may be off by a rounding of float64 at the
    value, 2**-30 for float32.
    """

    value: float
    rest: float


class Expected:
    """What a case must give.

    Attributes
    ----------
    types : dict of str to str
        The type of each output; an absent parameter has none.
    values : dict of str to ndarray or None
        y and dx as rows, dgamma and dbeta, correctly rounded; None for an absent parameter.
    wide : dict of str to ndarray
        The same in float64.
    rests : dict of str to ndarray
        What the rounding left over, in ulp of the value.
    ulps : dict of str to ndarray
        The ulp of each value; of one that is not finite, the smallest.
    scales : Scales
        The natural scales of the results.
    """

    def __init__(self, case: Case) -> None:
        wholes = {"y": case.x, "dx": case.x, "dgamma": case.gamma, "dbeta": case.beta}
        self.types = {
            name: array.dtype.name for name, array in wholes.items() if array is not None
        }
        sought = _Answers(case, self.types)
        self.values: dict[str, Array | None] = dict.fromkeys(OUTPUTS)
        self.wide: dict[str, Float64s] = {}
        self.rests: dict[str, Float64s] = {}
        self.ulps: dict[str, Float64s] = {}
        for output, kind in self.types.items():
            pairs = np.array(sought.of(output), np.float64)
            if output in ("y", "dx"):
                pairs = np.tile(pairs.reshape(-1, case.x.shape[1], 2), (case.repeats, 1, 1))
            wide, self.rests[output] = pairs[..., 0], pairs[..., 1]
            self.values[output] = wide.astype(dtype_of(kind))
            self.wide[output] = wide
            self.ulps[output] = ulps_of(np.where(np.isfinite(wide), wide, 0.0), kind)
        self.scales = Scales(case, sought.rows)
        self._allowed: dict[tuple[str, int], Float64s] = {}

    def allowed(self, output: str, power: int = 0) -> Float64s:
        """Return how far each element may be off: by an ulp, and by K*u*scale.

        With a power, the scale of an algorithm whose error grows like that power of kappa. Where
        the value is not finite nothing is allowed.
        """
        place = (output, power)
        if place not in self._allowed:
            with np.errstate(all="ignore"):
                scale = self.scales.of(output, power) * self.scales.factor(output, power)
                bound = self.ulps[output] + unit_roundoff(self.types[output]) * scale
            self._allowed[place] = np.where(np.isfinite(self.wide[output]), bound, 0.0)
        return self._allowed[place]


@cache
def expected(case: Case) -> Expected:
    """Return the answers to a case, computed once."""
    with np.errstate(all="ignore"):  # whatever the caller has set
        return Expected(case)


def _floats(array: Array | None, size: int, absent: float) -> list[float]:
    if array is None:
        return [absent] * size
    floats: list[float] = array.astype(np.float64).tolist()
    return floats


class _Answers:
    """The results of the rows of a case, those that are repeated taken once."""

    def __init__(self, case: Case, types: dict[str, str]) -> None:
        once = len(case.x) // case.repeats
        size = case.x.shape[1]
        self.repeats, self.size = case.repeats, size
        self.formats = {output: FORMATS[kind] for output, kind in types.items()}
        self.x: list[list[float]] = case.x[:once].astype(np.float64).tolist()
        self.dy: list[list[float]] = case.dy[:once].astype(np.float64).tolist()
        self.gamma = _floats(case.gamma, size, 1.0)
        self.beta = _floats(case.beta, size, 0.0)
        self.rows = [_row(x, case.eps) for x in self.x]

    def of(self, output: str) -> Sequence[object]:
        """Return the rounded values, with what is left over."""
        target = self.formats[output]
        if output == "y":
            return [self._y(x, row, target) for x, row in zip(self.x, self.rows, strict=True)]
        if output == "dx":
            return [self._dx(dy, row, target) for dy, row in zip(self.dy, self.rows, strict=True)]
        column = self._dgamma if output == "dgamma" else self._dbeta
        return [column(j, target) for j in range(self.size)]

    def _y(self, x: list[float], row: ExactRow | None, target: FloatFormat) -> list[Rounded]:
        if row is None:
            return [Rounded(NOT_A_NUMBER, 0.0)] * self.size
        signs = centred_signs(x)
        found = []
        for j, (gamma, beta) in enumerate(zip(self.gamma, self.beta, strict=True)):
            if not (isfinite(gamma) and isfinite(beta)):
                found.append(Rounded(gamma * signs[j] + beta, 0.0))
                continue
            (scale, of_scale), (shift, of_shift) = map(float.as_integer_ratio, (gamma, beta))
            found.append(
                _rounded_line(
                    row.root,
                    scale * row.centred[j] * of_shift,
                    shift * row.scale * of_scale,
                    row.scale * of_scale * of_shift,
                    target,
                )
            )
        return found

    def _dx(self, dy: list[float], row: ExactRow | None, target: FloatFormat) -> list[Rounded]:
        if row is None or not all(map(isfinite, [*dy, *self.gamma])):
            return [Rounded(NOT_A_NUMBER, 0.0)] * self.size
        slopes = RowGradient(row, scaled_integers(self.gamma), dy)
        return [
            _rounded_line(row.root, slopes.bracket(j), 0, slopes.denominator, target)
            for j in range(self.size)
        ]

    def _dgamma(self, j: int, target: FloatFormat) -> Rounded:
        rows = [row for row in self.rows if row is not None]
        if len(rows) < len(self.rows):
            return Rounded(NOT_A_NUMBER, 0.0)
        column = [dy[j] for dy in self.dy]
        if not all(map(isfinite, column)):
            terms = zip(column, self.x, strict=True)
            signed = [dy * centred_signs(x)[j] for dy, x in terms if not isfinite(dy)]
            return Rounded(sum(signed), 0.0)
        ratios = zip(map(float.as_integer_ratio, column), rows, strict=True)
        return _rounded_sum(
            [
                Term(over * row.centred[j] * self.repeats, under * row.scale, row.root)
                for (over, under), row in ratios
            ],
            target,
        )

    def _dbeta(self, j: int, target: FloatFormat) -> Rounded:
        column = [dy[j] for dy in self.dy]
        special = [dy for dy in column if not isfinite(dy)]
        if special:
            return Rounded(sum(special), 0.0)
        integers, k = scaled_integers(column)
        total = sum(integers) * self.repeats
        return _rounded_line(ONE, 0, total, 1 << k, target)


def _row(x: list[float], eps: float) -> ExactRow | None:
    """Return the row, or None if all of its results are NaN."""
    if not all(map(isfinite, x)) or (eps == 0 and min(x) == max(x)):
        return None
    return ExactRow(x, eps)


def _place(value: float, target: FloatFormat) -> int:
    """Return the exponent of an ulp at a finite value."""
    return max(frexp(value)[1] - target.precision, target.quantum) if value else target.quantum


def _told_by_float64(wide: float, target: FloatFormat) -> Rounded | None:
    """Round again what was rounded to float64, where that is the same as rounding once.

    Numbers of a narrower type, and the points half way between them, are float64 numbers. So the
    exact answer is on the same side of each as `wide` is, unless `wide` is one of them.
    """
    if target.precision >= FLOAT64.precision or not isfinite(wide):
        return None
    value = round_ratio(*wide.as_integer_ratio(), target)
    if not isfinite(value):
        return None
    rest = ldexp(wide - value, -_place(value, target))
    return None if rest in (0.0, 0.5, -0.5) else Rounded(value, rest)


def _ratio(value: float, target: FloatFormat) -> tuple[int, int, int, int]:
    """Return a finite value as over/under, and up, down: multiplied by 2**up/2**down is in ulp."""
    place = _place(value, target)
    return *value.as_integer_ratio(), max(0, -place), max(0, place)


def _rounded_line(
    root: InverseRoot, a: int, b: int, denominator: int, target: FloatFormat
) -> Rounded:
    """Round (a*r + b)/denominator."""
    told = _told_by_float64(root.round_linear(a, b, denominator, FLOAT64), target)
    if told is not None:
        return told
    value = root.round_linear(a, b, denominator, target)
    if not isfinite(value):
        return Rounded(value, 0.0)
    over, under, up, down = _ratio(value, target)
    left = (a * under << up, (b * under - over * denominator) << up)
    return Rounded(value, root.round_linear(*left, denominator * under << down, FLOAT64))


def _rounded_sum(terms: list[Term], target: FloatFormat) -> Rounded:
    """Round a sum of roots."""
    told = _told_by_float64(round_sum_of_roots(terms, FLOAT64), target)
    if told is not None:
        return told
    value = round_sum_of_roots(terms, target)
    if not isfinite(value):
        return Rounded(value, 0.0)
    over, under, up, down = _ratio(value, target)
    left = [
        Term(term.numerator << up, term.denominator << down, term.root)
        for term in [*terms, Term(-over, under, ONE)]
    ]
    return Rounded(value, round_sum_of_roots(left, FLOAT64))
