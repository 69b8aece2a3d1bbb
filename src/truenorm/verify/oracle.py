"""The exact answers to a case: each result correctly rounded, and what the rounding left over.

With x, dy, gamma and beta as the binary numbers they are, r = 1/sqrt(w) is the only irrational
number of a row (docs/derivation.md, D4), so that `truenorm.exact` rounds every result once and
exactly. What it rounds is written out here again, from the definitions.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from math import isfinite

import numpy as np

from truenorm.exact import (
    FLOAT64,
    ExactRow,
    FloatFormat,
    RowGradient,
    Term,
    centred_signs,
    scaled_integers,
)
from truenorm.verify.answers.guesses import LAYER_NORM
from truenorm.verify.answers.question import Known, Numbers, Question
from truenorm.verify.answers.store import answer
from truenorm.verify.bounds import Scales
from truenorm.verify.inputs import Case
from truenorm.verify.record import OUTPUTS
from truenorm.verify.rounded import ONE, Rounded, rounded_line, rounded_sum
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of, unit_roundoff

__all__ = ["Expected", "computed", "expected", "question"]

NOT_A_NUMBER = float("nan")


class Expected:
    """What a case must give.

    Attributes
    ----------
    types : mapping of str to str
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
        asked = question(case)
        self.types = asked.types
        numbers = answer(asked, lambda: computed(asked))
        self.values: dict[str, Array | None] = dict.fromkeys(OUTPUTS)
        self.wide: dict[str, Float64s] = {}
        self.rests: dict[str, Float64s] = {}
        self.ulps: dict[str, Float64s] = {}
        for output, kind in self.types.items():
            pairs = numbers[output]
            if output in ("y", "dx"):
                pairs = np.tile(pairs, (case.repeats, 1, 1))
            wide, self.rests[output] = pairs[..., 0], pairs[..., 1]
            self.values[output] = wide.astype(dtype_of(kind))
            self.wide[output] = wide
            self.ulps[output] = ulps_of(np.where(np.isfinite(wide), wide, 0.0), kind)
        self.scales = Scales(case, numbers["r"], numbers["xhat"])
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


def question(case: Case) -> Question:
    """Return what is asked for: of rows that are repeated once, and without absent parameters."""
    once, size = len(case.x) // case.repeats, case.x.shape[1]
    wholes = {"y": case.x, "dx": case.x, "dgamma": case.gamma, "dbeta": case.beta}
    types = {name: array.dtype.name for name, array in wholes.items() if array is not None}
    inputs = {
        "x": case.x[:once],
        "dy": case.dy[:once],
        "gamma": np.ones(size) if case.gamma is None else case.gamma,
        "beta": np.zeros(size) if case.beta is None else case.beta,
        "eps": np.asarray(case.eps),
        "repeats": np.asarray(case.repeats),
    }
    given = {name: array.astype(np.float64) for name, array in inputs.items()}
    absent = set(OUTPUTS) - set(types)
    guesses = {name: guess for name, guess in LAYER_NORM.items() if name not in absent}
    return Question(given, types, guesses)


@np.errstate(all="ignore")
def computed(question: Question) -> Numbers:
    """Return r and xhat of each row, rounded to float64, and the results with what is left over.

    Those of a row that has no result are zero.
    """
    sought = _Answers(question.given, question.types)
    rows, size = question.given["x"].shape
    numbers = {"r": np.zeros((rows, 1)), "xhat": np.zeros((rows, size))}
    for i, row in enumerate(sought.rows):
        if row is not None:
            numbers["r"][i] = row.root.round_linear(1, 0, 1, FLOAT64)
            numbers["xhat"][i] = [
                row.root.round_linear(c, 0, row.scale, FLOAT64) for c in row.centred
            ]
    for output in question.types:
        pairs = np.array(sought.of(output), np.float64)
        numbers[output] = pairs.reshape(-1, size, 2) if output in ("y", "dx") else pairs
    return numbers


class _Answers:
    """The results of the rows of a case, those that are repeated taken once."""

    def __init__(self, given: Known, types: Mapping[str, str]) -> None:
        self.x, self.dy, self.gamma, self.beta = (
            given[name].tolist() for name in ("x", "dy", "gamma", "beta")
        )
        self.size, self.repeats = len(self.gamma), int(given["repeats"])
        self.formats = {output: FORMATS[kind] for output, kind in types.items()}
        self.rows = [_row(x, float(given["eps"])) for x in self.x]

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
                rounded_line(
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
            rounded_line(row.root, slopes.bracket(j), 0, slopes.denominator, target)
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
        return rounded_sum(
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
        return rounded_line(ONE, 0, total, 1 << k, target)


def _row(x: list[float], eps: float) -> ExactRow | None:
    """Return the row, or None if all of its results are NaN."""
    if not all(map(isfinite, x)) or (eps == 0 and min(x) == max(x)):
        return None
    return ExactRow(x, eps)
