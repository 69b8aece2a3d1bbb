"""The results of layer normalization in integers.

With x, dy, gamma and beta as the binary numbers they are, r = 1/sqrt(w) is the only irrational
number of a row (docs/derivation.md, D4), so that `truenorm.exact` rounds every result once and
exactly. What it rounds is written out here again, from the definitions.
"""

from collections.abc import Iterator
from math import isfinite

import numpy as np

from truenorm.exact import ExactRow, RowGradient, Term, centred_signs, scaled_integers
from truenorm.verify.answers.rounded import ONE, Known, Line, Number, Sum, rounded
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Array, Float64s

__all__ = ["exact_answers"]

NOT_A_NUMBER = Known(float("nan"))
BITS = 96  # of a root, for scales: more than float64 has


def exact_answers(case: Case) -> dict[str, Float64s]:
    """Return r and xhat of each row, and y, dx, dgamma and dbeta rounded once."""
    answers = _Answers(case)
    size = case.shape[1]
    found = answers.statistics()
    for output, numbers in (
        ("y", answers.y()),
        ("dx", answers.dx()),
        ("dgamma", answers.dgamma()),
        ("dbeta", answers.dbeta()),
    ):
        like = case.inputs[{"dgamma": "gamma", "dbeta": "beta"}.get(output, "x")]
        if like is not None:
            shape = (-1, size, 2) if case.operation.is_rows(output) else (size, 2)
            pairs = rounded(list(numbers), FORMATS[like.dtype.name])
            found[output] = pairs.reshape(shape)
    return found


def _floats(array: Array | None, size: int, absent: float) -> list[float]:
    if array is None:
        return [absent] * size
    floats: list[float] = array.astype(np.float64).tolist()
    return floats


class _Answers:
    """The results of the rows of a case, those that are repeated taken once."""

    def __init__(self, case: Case) -> None:
        rows, self.size = case.shape
        once = rows // case.repeats
        self.repeats = case.repeats
        self.x: list[list[float]] = case.x[:once].astype(np.float64).tolist()
        self.dy: list[list[float]] = case.dy[:once].astype(np.float64).tolist()
        self.gamma = _floats(case.gamma, self.size, 1.0)
        self.beta = _floats(case.beta, self.size, 0.0)
        self.rows = [_row(x, case.eps) for x in self.x]

    def y(self) -> Iterator[Number]:
        """Yield gamma*c*r + beta, row by row."""
        finite = all(map(isfinite, [*self.gamma, *self.beta]))
        for x, row in zip(self.x, self.rows, strict=True):
            if row is None:
                yield from [NOT_A_NUMBER] * self.size
                continue
            signs = [] if finite else centred_signs(x)
            for j, (gamma, beta) in enumerate(zip(self.gamma, self.beta, strict=True)):
                if not (isfinite(gamma) and isfinite(beta)):
                    yield Known(gamma * signs[j] + beta)
                    continue
                scale, of_scale = gamma.as_integer_ratio()
                shift, of_shift = beta.as_integer_ratio()
                under = row.scale * of_scale
                yield Line(
                    row.root, scale * row.centred[j] * of_shift, shift * under, under * of_shift
                )

    def dx(self) -> Iterator[Number]:
        """Yield r*(g - mean(g) - c*mean(g*c)/w), row by row."""
        gamma = scaled_integers(self.gamma) if all(map(isfinite, self.gamma)) else None
        for dy, row in zip(self.dy, self.rows, strict=True):
            if row is None or gamma is None or not all(map(isfinite, dy)):
                yield from [NOT_A_NUMBER] * self.size
                continue
            slopes = RowGradient(row, gamma, dy)
            for j in range(self.size):
                yield Line(row.root, slopes.bracket(j), 0, slopes.denominator)

    def dgamma(self) -> Iterator[Number]:
        """Yield the sum of dy*xhat over the rows, for each column."""
        rows = [row for row in self.rows if row is not None]
        if len(rows) < len(self.rows):
            yield from [NOT_A_NUMBER] * self.size
            return
        for j in range(self.size):
            column = [dy[j] for dy in self.dy]
            if not all(map(isfinite, column)):
                pairs = zip(column, self.x, strict=True)
                signed = [dy * centred_signs(x)[j] for dy, x in pairs if not isfinite(dy)]
                yield Known(sum(signed))
                continue
            ratios = zip(map(float.as_integer_ratio, column), rows, strict=True)
            terms = [
                Term(over * row.centred[j] * self.repeats, under * row.scale, row.root)
                for (over, under), row in ratios
            ]
            # Of one row, as the wide ones are, it is no sum, and quicker to round.
            yield Sum(terms) if len(terms) != 1 else Line.of(terms[0])

    def dbeta(self) -> Iterator[Number]:
        """Yield the sum of dy over the rows, for each column."""
        for j in range(self.size):
            column = [dy[j] for dy in self.dy]
            special = [dy for dy in column if not isfinite(dy)]
            if special:
                yield Known(sum(special))
                continue
            integers, k = scaled_integers(column)
            yield Line(ONE, 0, sum(integers) * self.repeats, 1 << k)

    def statistics(self) -> dict[str, Float64s]:
        """Return r and xhat in float64; zeros for a row whose results are NaN."""
        found = {"r": np.zeros((len(self.rows), 1)), "xhat": np.zeros((len(self.rows), self.size))}
        for i, row in enumerate(self.rows):
            if row is not None:
                place = max(0, BITS - row.root.magnitude)
                r, under = row.root.scaled(place), row.scale << place
                found["r"][i] = r / (1 << place)
                found["xhat"][i] = [c * r / under for c in row.centred]
        return found


def _row(x: list[float], eps: float) -> ExactRow | None:
    """Return the row, or None if all of its results are NaN."""
    if not all(map(isfinite, x)) or (eps == 0 and min(x) == max(x)):
        return None
    return ExactRow(x, eps)
