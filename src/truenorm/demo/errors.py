"""How far the results of an algorithm are from the exact ones, which are computed in integers."""

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from truenorm.exact import ExactRow, round_ratio, scaled_integers
from truenorm.textbook import FloatArray
from truenorm.verify.answers.expected import expected
from truenorm.verify.operation import Case
from truenorm.verify.types import FORMATS, Float64s, ulps_of

__all__ = [
    "OUTPUTS",
    "Error",
    "Results",
    "errors_of",
    "rounded_answer",
    "rounded_means",
    "rounded_variances",
]

OUTPUTS = ("variance", "y", "dx", "dgamma")


class Results(NamedTuple):
    """What an algorithm returns for a case; truenorm returns no variance."""

    variance: FloatArray | None
    y: FloatArray
    dx: FloatArray
    dgamma: FloatArray
    dbeta: FloatArray


class Error(NamedTuple):
    """The largest error of an output, over its natural scale and in ulp; NaN if there is a NaN."""

    relative: float
    ulp: float


def rounded_means(x: FloatArray) -> FloatArray:
    """Return the mean of each row (D1), correctly rounded to the type of x."""
    rows = [scaled_integers(row) for row in x.astype(np.float64).tolist()]
    return _rounded((Fraction(sum(each), len(each) << k) for each, k in rows), x)


def rounded_variances(x: FloatArray) -> FloatArray:
    """Return the variance of each row (D3), correctly rounded to the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.float32([[1e7, 1e7 + 1, 1e7 + 1]])
    >>> rounded_means(x).tolist(), rounded_variances(x).tolist() == [np.float32(2 / 9)]
    ([10000001.0], True)
    """
    return _rounded(_variances(x), x)


def _rounded(exact: Iterable[Fraction], x: FloatArray) -> FloatArray:
    target = FORMATS[x.dtype.name]
    return np.array([round_ratio(*each.as_integer_ratio(), target) for each in exact]).astype(
        x.dtype
    )


def rounded_answer(case: Case, output: str) -> Float64s:
    """Return the exact answer, rounded once to the type of the case."""
    if output != "variance":
        return expected(case).wide[output]
    variances: Float64s = rounded_variances(case.x).astype(np.float64)
    return variances


def errors_of(case: Case, results: Results) -> dict[str, Error]:
    """Return the error of each of `OUTPUTS` that the algorithm returns.

    The natural scale of y is |gamma|(|xhat| + rho) + |beta|, with those of dx and dgamma in
    `truenorm.verify.operations.layer_norm.scales`. That of a variance is the variance.
    """
    found = {}
    if results.variance is not None:
        found["variance"] = _variance_error(case, results.variance)
    answers = expected(case)
    for output in OUTPUTS[1:]:
        result: Float64s = getattr(results, output).astype(np.float64)
        exact, ulps, rests = (each[output] for each in (answers.wide, answers.ulps, answers.rests))
        with np.errstate(all="ignore"):
            in_ulp = np.abs((result - exact) / ulps - rests)
            relative = in_ulp * ulps / answers.scale(output)
        # The maximum of numbers of which one is NaN is NaN.
        found[output] = Error(float(relative.max()), float(in_ulp.max()))
    return found


def _variances(x: FloatArray) -> list[Fraction]:
    """Return the exact variance of each row: w of (D4) without eps."""
    roots = [ExactRow(row, 0.0).root for row in x.astype(np.float64).tolist()]
    return [Fraction(root.numerator, root.denominator) for root in roots]


def _variance_error(case: Case, variance: FloatArray) -> Error:
    if not np.isfinite(variance).all():
        worst = float(np.abs(variance).max())
        return Error(worst, worst)
    relative, in_ulp = [], []
    for value, exact, ulp in zip(variance.tolist(), *_variances_and_ulps(case), strict=True):
        error = abs(Fraction(value) - exact)
        relative.append(float(error / exact) if exact else math.inf if error else 0.0)
        in_ulp.append(float(error / ulp))
    return Error(max(relative), max(in_ulp))


@cache
def _variances_and_ulps(case: Case) -> tuple[list[Fraction], list[Fraction]]:
    ulps = ulps_of(rounded_answer(case, "variance"), case.dtype)
    return _variances(case.x), [Fraction(each) for each in ulps.tolist()]
