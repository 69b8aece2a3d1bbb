"""The results of a norm in integers.

With x, dy, gamma and beta as the binary numbers they are, r = 1/sqrt(w) is the only irrational
number of a row (docs/derivation.md, D4), so that `truenorm.exact` rounds every result once and
exactly. What it rounds is written out here again, from the definitions.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import isfinite, isinf, isnan, nan
from types import MappingProxyType

import numpy as np

from truenorm.exact import ExactRow, RowGradient, Term, centred_signs, scaled_integers
from truenorm.verify.operation import Case, Predictor
from truenorm.verify.operations.definition import Definition
from truenorm.verify.oracle import (
    ONE,
    ExactNumber,
    LinearInRoot,
    NonFinite,
    SumOfRoots,
    output_types,
    round_exactly,
)
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

NOT_A_NUMBER = NonFinite(nan)
BITS = 96  # of a root, for scales: more than float64 has


def exact_answers(
    case: Case, norm: Definition, known: Mapping[str, Float64s] = MappingProxyType({})
) -> dict[str, Float64s]:
    """Return r and xhat of each row, and all results rounded once, as far as none is known."""
    answers = _Answers(case, norm)
    size = case.shape[1]
    found = {**(known or answers.statistics())}
    computed = {
        "y": answers.y,
        "dx": answers.dx,
        "dgamma": answers.dgamma,
        "dbeta": answers.dbeta,
    }
    for output, kind in output_types(case).items():
        if output in found:
            continue
        if output == "dresidual":  # of a sum, both gradients are the same
            found[output] = found["dx"]
            continue
        if output == "sum":
            found[output] = rounded_sum(case.x, case.residual)[: len(answers.rows)]
            continue
        shape = (-1, size, 2) if case.operation.is_rows(output) else (size, 2)
        found[output] = round_exactly(list(computed[output]()), FORMATS[kind]).reshape(shape)
    return found


@np.errstate(all="ignore")
def rounded_sum(one: Array, other: Array) -> Float64s:
    """Return the sum of two arrays, rounded once as every machine does, and what that left over.

    The error of a sum of two float64 numbers is a float64 number, which Knuth's steps find.
    """
    total = one + other
    a, b, s = (each.astype(np.float64) for each in (one, other, total))
    part = s - a
    left = (a - (s - part)) + (b - part)
    rests = np.where(
        np.isfinite(s), left / ulps_of(np.where(np.isfinite(s), s, 0.0), one.dtype.name), 0.0
    )
    return np.stack([s, rests], axis=-1)


def _rows(array: Array) -> list[list[float]]:
    floats: list[list[float]] = array.astype(np.float64).tolist()
    return floats


def _floats(array: Array | None, size: int, absent: float) -> list[float]:
    if array is None:
        return [absent] * size
    floats: list[float] = array.astype(np.float64).tolist()
    return floats


class _Row:
    """A row of x; without `exact` there is no result, and everything it touches is NaN."""

    def __init__(self, x: list[float], eps: float, *, centred: bool) -> None:
        self.x, self.centred = x, centred
        unknown, infinite = any(map(isnan, x)), any(map(isinf, x))
        without_w = eps == 0 and (min(x) == max(x) if centred else not any(x))
        # mean(x^2) is infinite, so that r and all finite elements of xhat are 0.
        self.vanishes = infinite and not unknown and not centred
        self.exact: ExactRow | None = None
        if self.vanishes:
            self.exact = ExactRow([0.0] * len(x), 1.0, is_centred=False)
        elif not (unknown or infinite or without_w):
            self.exact = ExactRow(x, eps, is_centred=centred)

    @cached_property
    def signs(self) -> list[float]:
        """The signs of xhat; where infinity meets r = 0 there is none."""
        if self.vanishes:
            return [0.0 if isfinite(each) else nan for each in self.x]
        if self.centred:
            return [float(each) for each in centred_signs(self.x)]
        return [float((each > 0) - (each < 0)) for each in self.x]


class _Answers:
    """The results of the rows of a case, those that are repeated taken once."""

    def __init__(self, case: Case, norm: Definition) -> None:
        rows, self.size = case.shape
        once = rows // case.repeats
        self.repeats = case.repeats
        self.offset = int(norm.gain == "zero-centred")
        given = {name: _rows(array[:once]) for name, array in case.rows.items()}
        self.dy, self.dsum = given["dy"], given.get("dsum")
        self.gamma = _floats(case.gamma, self.size, 1.0 - self.offset)
        self.beta = _floats(case.inputs.get("beta"), self.size, 0.0)
        normalized = _rows(norm.normalized(case)[:once])
        self.rows = [_Row(each, case.eps, centred=norm.centred) for each in normalized]

    def y(self) -> Iterator[ExactNumber]:
        """Yield gamma*c*r + beta, row by row."""
        finite = [isfinite(a) and isfinite(b) for a, b in zip(self.gamma, self.beta, strict=True)]
        for row in self.rows:
            if row.exact is None:
                yield from [NOT_A_NUMBER] * self.size
                continue
            for j, (gamma, beta) in enumerate(zip(self.gamma, self.beta, strict=True)):
                if not finite[j] or (row.vanishes and not isfinite(row.x[j])):
                    yield NonFinite(gamma * row.signs[j] + beta)
                    continue
                scale, of_scale = gamma.as_integer_ratio()
                scale += self.offset * of_scale
                shift, of_shift = beta.as_integer_ratio()
                under = row.exact.scale * of_scale
                yield LinearInRoot(
                    row.exact.root,
                    scale * row.exact.centred[j] * of_shift,
                    shift * under,
                    under * of_shift,
                )

    def dx(self) -> Iterator[ExactNumber]:
        """Yield r*(g - mean(g) - c*mean(g*c)/w), or without mean(g), row by row; and dsum."""
        gamma = None
        if all(map(isfinite, self.gamma)):
            integers, k = scaled_integers(self.gamma)
            gamma = [each + (self.offset << k) for each in integers], k
        for i, (dy, row) in enumerate(zip(self.dy, self.rows, strict=True)):
            if row.exact is None or row.vanishes or gamma is None or not all(map(isfinite, dy)):
                yield from [NOT_A_NUMBER] * self.size
                continue
            slopes = RowGradient(row.exact, gamma, dy)
            for j in range(self.size):
                if self.dsum is None:
                    yield LinearInRoot(row.exact.root, slopes.bracket(j), 0, slopes.denominator)
                    continue
                over, under = self.dsum[i][j].as_integer_ratio()
                yield LinearInRoot(
                    row.exact.root,
                    slopes.bracket(j) * under,
                    over * slopes.denominator,
                    slopes.denominator * under,
                )

    def dgamma(self) -> Iterator[ExactNumber]:
        """Yield the sum of dy*xhat over the rows, for each column."""
        rows = [row.exact for row in self.rows if row.exact is not None]
        if len(rows) < len(self.rows):
            yield from [NOT_A_NUMBER] * self.size
            return
        for j in range(self.size):
            column = [dy[j] for dy in self.dy]
            special = [
                dy * row.signs[j]
                for dy, row in zip(column, self.rows, strict=True)
                if not (isfinite(dy) and isfinite(row.x[j]))
            ]
            if special:
                yield NonFinite(sum(special))
                continue
            ratios = zip(map(float.as_integer_ratio, column), rows, strict=True)
            terms = [
                Term(over * row.centred[j] * self.repeats, under * row.scale, row.root)
                for (over, under), row in ratios
            ]
            # Of one row, as the wide ones are, it is no sum, and quicker to round.
            yield SumOfRoots(terms) if len(terms) != 1 else LinearInRoot.of(terms[0])

    def dbeta(self) -> Iterator[ExactNumber]:
        """Yield the sum of dy over the rows, for each column."""
        for j in range(self.size):
            column = [dy[j] for dy in self.dy]
            special = [dy for dy in column if not isfinite(dy)]
            if special:
                yield NonFinite(sum(special))
                continue
            integers, k = scaled_integers(column)
            yield LinearInRoot(ONE, 0, sum(integers) * self.repeats, 1 << k)

    def statistics(self) -> dict[str, Float64s]:
        """Return r and xhat in float64; zeros for a row whose results are NaN or vanish."""
        found = {"r": np.zeros((len(self.rows), 1)), "xhat": np.zeros((len(self.rows), self.size))}
        for i, row in enumerate(self.rows):
            if row.exact is not None and not row.vanishes:
                root, scale = row.exact.root, row.exact.scale
                place = max(0, BITS - root.magnitude)
                r, under = root.scaled(place), scale << place
                found["r"][i] = r / (1 << place)
                found["xhat"][i] = [c * r / under for c in row.exact.centred]
        return found


Arrays = Mapping[str, Float64s]


def _total(terms: Float64s) -> Float64s:
    """Add up along the first axis, by halves: NumPy's own sums depend on the processor."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Float64s = terms.sum(axis=0)  # of one, or of none
    return total


def _mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    means: Float64s = _total(rows.T)[:, np.newaxis] / rows.shape[1]
    return means


def _sum(known: Arrays) -> Float64s:
    """Return what is normalized; where it is rounded, nearly."""
    return known["x"] + known["residual"] if "residual" in known else known["x"]


def predictors_of(norm: Definition) -> dict[str, Predictor]:
    """Return the definitions of a norm, those of a row's statistics first."""
    offset = float(norm.gain == "zero-centred")

    def gain(known: Arrays) -> Float64s:
        return known["gamma"] + offset if "gamma" in known else np.ones(known["x"].shape[1])

    def c(known: Arrays) -> Float64s:
        return _sum(known) - _mean(_sum(known)) if norm.centred else _sum(known)

    def r(known: Arrays) -> Float64s:
        inverse: Float64s = 1 / np.sqrt(_mean(c(known) * c(known)) + known["eps"])
        return inverse

    def y(known: Arrays) -> Float64s:
        scaled = gain(known) * known["xhat"]
        return scaled + known["beta"] if "beta" in known else scaled

    def dx(known: Arrays) -> Float64s:
        g, xhat = gain(known) * known["dy"], known["xhat"]
        kept = g - _mean(g) if norm.centred else g
        found = known["r"] * (kept - xhat * _mean(g * xhat))
        return found + known["dsum"] if "dsum" in known else found

    return {
        "r": r,
        "xhat": lambda known: c(known) * known["r"],
        "y": y,
        "sum": _sum,
        "dx": dx,
        "dresidual": lambda known: known["dx"][..., 0],
        "dgamma": lambda known: known["repeats"] * _total(known["dy"] * known["xhat"]),
        "dbeta": lambda known: known["repeats"] * _total(known["dy"]),
    }
