"""The exact results of a norm, computed in integers, and float64 predictions of them.

Inputs are binary numbers, and r = 1/sqrt(w) is the only irrational number of a row
(docs/learn/derivation.md, D4), so `truenorm.exact` can round every result once. The formulas are
written from the definitions, and share nothing with the kernels.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from math import isfinite, isinf, isnan, nan
from types import MappingProxyType

import numpy as np

from truenorm.exact import ExactRow, RowGradient, Term, centred_signs, scaled_integers
from truenorm.verify.norms.enclosures import answers_by_enclosure
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case, Predictor
from truenorm.verify.oracle import (
    ONE,
    ExactNumber,
    LinearInRoot,
    NonFinite,
    SumOfRoots,
    load_or_compute,
    output_types,
    round_exactly,
)
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

NOT_A_NUMBER = NonFinite(nan)
BITS = 96  # of a root, for scales: more than float64 has


def answers_of(norm: Norm, case: Case) -> dict[str, Float64s]:
    """Return r and xhat of each row and all rounded results, by balls or by integers."""
    if case.enclosed and (answers := answers_by_enclosure(case)) is not None:
        return answers
    if norm.variant != "add":
        return exact_answers(case, norm)
    # Only dx depends on dsum; the other answers of the plain norm may be cached.
    inputs = {name: case.inputs[name] for name in (*norm.parameters, "dy")}
    rows = {"x": np.asarray(case.x + case.residual), **inputs}
    plain = replace(case, operation=norm.plain, inputs=rows)
    known = load_or_compute(plain, norm.plain.exact)
    del known["dx"]
    return exact_answers(case, norm, known)


def exact_answers(
    case: Case, norm: Norm, known: Mapping[str, Float64s] = MappingProxyType({})
) -> dict[str, Float64s]:
    """Return r and xhat of each row and all rounded results; compute only missing results."""
    rows = ExactRows(case, norm)
    size = case.shape[1]
    arrays = {**(known or rows.statistics())}
    numbers = {"y": rows.y, "dx": rows.dx, "dgamma": rows.dgamma, "dbeta": rows.dbeta}
    for output, kind in output_types(case).items():
        if output in arrays:
            continue
        if output == "dresidual":  # both summands have the same gradient
            arrays[output] = arrays["dx"]
        elif output == "sum":
            arrays[output] = round_sum(case.x, case.residual)[: len(rows.rows)]
        else:
            shape = (-1, size, 2) if case.operation.is_rows(output) else (size, 2)
            arrays[output] = round_exactly(list(numbers[output]()), FORMATS[kind]).reshape(shape)
    return arrays


@np.errstate(all="ignore")
def round_sum(one: Array, other: Array) -> Float64s:
    """Return the rounded sum of two arrays, and its remainder in ulp, by Knuth's TwoSum."""
    total = one + other
    a, b, s = (each.astype(np.float64) for each in (one, other, total))
    part = s - a
    error = (a - (s - part)) + (b - part)
    finite = np.isfinite(s)
    remainders = np.where(finite, error / ulps_of(np.where(finite, s, 0.0), one.dtype.name), 0.0)
    return np.stack([s, remainders], axis=-1)


def _rows(array: Array) -> list[list[float]]:
    floats: list[list[float]] = array.astype(np.float64).tolist()
    return floats


def _floats(array: Array | None, size: int, default: float) -> list[float]:
    if array is None:
        return [default] * size
    floats: list[float] = array.astype(np.float64).tolist()
    return floats


class _Row:
    """A row of x; if `exact` is None, the row and sums with the row are NaN."""

    def __init__(self, x: list[float], eps: float, *, centred: bool) -> None:
        self.x, self.centred = x, centred
        has_nan, infinite = any(map(isnan, x)), any(map(isinf, x))
        undefined = eps == 0 and (min(x) == max(x) if centred else not any(x))
        # mean(x^2) is infinite, so that r and all finite elements of xhat are 0.
        self.vanishes = infinite and not has_nan and not centred
        self.exact: ExactRow | None = None
        if self.vanishes:
            self.exact = ExactRow([0.0] * len(x), 1.0, is_centred=False)
        elif not (has_nan or infinite or undefined):
            self.exact = ExactRow(x, eps, is_centred=centred)

    @cached_property
    def signs(self) -> list[float]:
        """The signs of xhat; NaN for an infinite element, since r is 0."""
        if self.vanishes:
            return [0.0 if isfinite(each) else nan for each in self.x]
        if self.centred:
            return [float(each) for each in centred_signs(self.x)]
        return [float((each > 0) - (each < 0)) for each in self.x]


class ExactRows:
    """The exact results of a case; repeated rows are computed once."""

    def __init__(self, case: Case, norm: Norm) -> None:
        rows, self.size = case.shape
        once = rows // case.repeats
        self.repeats = case.repeats
        self.offset = int(norm.gain == "zero-centred")
        arrays = {name: _rows(array[:once]) for name, array in case.rows.items()}
        self.dy, self.dsum = arrays.get("dy", []), arrays.get("dsum")
        self.gamma = _floats(case.gamma, self.size, 1.0 - self.offset)
        self.beta = _floats(case.inputs.get("beta"), self.size, 0.0)
        normalized = _rows(norm.normalized(case)[:once])
        self.rows = [_Row(each, case.eps, centred=norm.centred) for each in normalized]

    def y(self) -> Iterator[ExactNumber]:
        """Yield gamma*c*r + beta, row by row."""
        for row in self.rows:
            for j in range(self.size):
                yield self.y_at(row, j)

    def y_at(self, row: "_Row", j: int) -> ExactNumber:
        """Return one element of y."""
        gamma, beta = self.gamma[j], self.beta[j]
        if row.exact is None:
            return NOT_A_NUMBER
        if not (isfinite(gamma) and isfinite(beta)) or (row.vanishes and not isfinite(row.x[j])):
            return NonFinite(gamma * row.signs[j] + beta)
        scale, of_scale = gamma.as_integer_ratio()
        scale += self.offset * of_scale
        shift, of_shift = beta.as_integer_ratio()
        under = row.exact.scale * of_scale
        return LinearInRoot(
            row.exact.root,
            scale * row.exact.centred[j] * of_shift,
            shift * under,
            under * of_shift,
        )

    def dx(self) -> Iterator[ExactNumber]:
        """Yield r*(g - mean(g) - c*mean(g*c)/w) + dsum, row by row; mean(g) only if centred."""
        gamma = None
        if all(map(isfinite, self.gamma)):
            integers, k = scaled_integers(self.gamma)
            gamma = [each + (self.offset << k) for each in integers], k
        for i, (dy, row) in enumerate(zip(self.dy, self.rows, strict=True)):
            if row.exact is None or row.vanishes or gamma is None or not all(map(isfinite, dy)):
                yield from [NOT_A_NUMBER] * self.size
                continue
            gradient = RowGradient(row.exact, gamma, dy)
            for j in range(self.size):
                if self.dsum is None:
                    yield LinearInRoot(
                        row.exact.root, gradient.bracket(j), 0, gradient.denominator
                    )
                    continue
                over, under = self.dsum[i][j].as_integer_ratio()
                yield LinearInRoot(
                    row.exact.root,
                    gradient.bracket(j) * under,
                    over * gradient.denominator,
                    gradient.denominator * under,
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
            # A sum of one term is faster to round as a linear form; wide cases have one row.
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
        """Return r and xhat in float64; zeros for a row without finite results."""
        count = len(self.rows)
        r, xhat = np.zeros((count, 1)), np.zeros((count, self.size))
        for i, row in enumerate(self.rows):
            if row.exact is not None and not row.vanishes:
                root, scale = row.exact.root, row.exact.scale
                place = max(0, BITS - root.magnitude)
                over, under = root.scaled(place), scale << place
                r[i] = over / (1 << place)
                xhat[i] = [c * over / under for c in row.exact.centred]
        return {"r": r, "xhat": xhat}


Arrays = Mapping[str, Float64s]


def _total(terms: Float64s) -> Float64s:
    """Sum along the first axis by halves: the bits of NumPy's sums depend on the CPU."""
    while len(terms) > 1:
        half = len(terms) // 2
        terms = np.concatenate([terms[:half] + terms[half : 2 * half], terms[2 * half :]])
    total: Float64s = terms.sum(axis=0)  # one row, or none
    return total


def _mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    means: Float64s = _total(rows.T)[:, np.newaxis] / rows.shape[1]
    return means


def _sum(known: Arrays) -> Float64s:
    """Return the rows that are normalized, up to their rounding."""
    return known["x"] + known["residual"] if "residual" in known else known["x"]


def predictors_of(norm: Norm) -> dict[str, Predictor]:
    """Return a float64 formula for each array of `exact_answers`, statistics of rows first."""
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
        centred = g - _mean(g) if norm.centred else g
        gradient = known["r"] * (centred - xhat * _mean(g * xhat))
        return gradient + known["dsum"] if "dsum" in known else gradient

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
