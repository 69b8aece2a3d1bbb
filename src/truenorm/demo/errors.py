"""How far the results of an algorithm are from the exact ones, which are computed in integers."""

import math
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from truenorm.demo.algorithms import Results
from truenorm.demo.exact_moments import exact_variances, rounded_variances
from truenorm.textbook import FloatArray
from truenorm.verify.answers.expected import expected
from truenorm.verify.operation import Case
from truenorm.verify.types import Float64s, ulps_of

__all__ = ["OUTPUTS", "Error", "errors_of", "rounded_answer"]

OUTPUTS = ("variance", "y", "dx", "dgamma")


class Error(NamedTuple):
    """The largest error of an output, over its natural scale and in ulp; NaN if there is a NaN."""

    relative: float
    ulp: float


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


def rounded_answer(case: Case, output: str) -> Float64s:
    """Return the exact answer, rounded once to the type of the case."""
    if output == "variance":
        variances: Float64s = rounded_variances(case.x).astype(np.float64)
        return variances
    return expected(case).wide[output]


@cache
def _variances(case: Case) -> list[Fraction]:
    """Return the exact variances of a case, computed once."""
    return exact_variances(case.x)


def _variance_error(case: Case, variance: FloatArray) -> Error:
    ulps = ulps_of(rounded_answer(case, "variance"), case.dtype).tolist()
    relative, in_ulp = [0.0], [0.0]
    for value, exact, ulp in zip(variance.tolist(), _variances(case), ulps, strict=True):
        if not math.isfinite(value):
            return Error(abs(value), abs(value))
        error = abs(Fraction(value) - exact)
        relative.append(float(error / exact) if exact else math.inf if error else 0.0)
        in_ulp.append(float(error / Fraction(ulp)))
    return Error(max(relative), max(in_ulp))
