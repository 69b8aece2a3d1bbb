"""How far the results of an algorithm are from the exact ones, which are computed in integers."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from truenorm import textbook, variance_forms
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.exact import ExactRow, round_ratio, scaled_integers
from truenorm.textbook import FloatArray
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS, Float64s, ulps_of

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
    `truenorm.verify.operations.scales`. That of a variance is the variance.
    """
    found = {}
    if results.variance is not None:
        found["variance"] = _variance_error(case, results.variance)
    answers = expected(case)
    for output in OUTPUTS[1:]:
        result: Float64s = getattr(results, output).astype(np.float64)
        exact, ulps, remainders = (
            each[output] for each in (answers.wide, answers.ulps, answers.remainders)
        )
        with np.errstate(all="ignore"):
            in_ulp = np.abs((result - exact) / ulps - remainders)
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


TEXTBOOK = "two-pass (textbook)"
IN_FLOAT64 = "textbook in float64 then cast"
OURS = "truenorm"


Moments = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""Takes rows, returns them centred (D2) and the variance of each (D3)."""


def _with_variance(variance: Callable[[FloatArray], FloatArray]) -> Moments:
    """Return moments whose mean is one number of the type, beside a form of the variance."""

    def moments(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        return x - x.mean(axis=-1, keepdims=True), variance(x)

    return moments


def _welford(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Centre by the running mean, which is what Welford's update has in the end."""
    mean = np.zeros_like(x[..., 0])
    for count, column in enumerate(np.moveaxis(x, -1, 0), start=1):
        mean = mean + (column - mean) / count
    return x - mean[..., np.newaxis], variance_forms.welford(x)


def _exact_then_rounded(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Round the exact mean and variance once: no single number of the type is a better mean."""
    return x - rounded_means(x)[..., np.newaxis], rounded_variances(x)


def _pair_mean(x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Keep the mean as two numbers: its rounding error is the mean of what is left of x.

    (E1) of docs/error-analysis.md, in the type itself: x - high is exact where they are close.
    """
    left = x - x.mean(axis=-1, keepdims=True)
    centred = left - left.mean(axis=-1, keepdims=True)
    return centred, (centred * centred).mean(axis=-1)


MOMENTS: dict[str, Moments] = {
    "one-pass": _with_variance(variance_forms.one_pass),
    "Welford": _welford,
    TEXTBOOK: _with_variance(variance_forms.two_pass),
    "corrected two-pass": _with_variance(variance_forms.corrected_two_pass),
    "rounded exact mean": _exact_then_rounded,
    "pair mean": _pair_mean,
}
ALGORITHMS: tuple[str, ...] = (*MOMENTS, IN_FLOAT64, OURS)
"""From the worst to the best, where the mean is far from zero."""


def contestants(dtype: str) -> tuple[str, ...]:
    """Return the algorithms that a type has: for float64 there is nothing wider to compute in."""
    return tuple(name for name in ALGORITHMS if name != IN_FLOAT64 or dtype != "float64")


def run(name: str, case: Case) -> Results:
    """Run one of `ALGORITHMS`, forward and backward.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm.verify.operations import layer_norm_case
    >>> x, dy = np.float32([[1e7, 1e7 + 1, 1e7 + 1]]), np.float32([[1, 0, 0]])
    >>> case = layer_norm_case("offset", (x, np.ones(3, "f4"), np.zeros(3, "f4"), dy), 1e-5)
    >>> print(run("two-pass (textbook)", case).y, run("pair mean", case).y)
    [[0.        1.2247356 1.2247356]] [[-1.4141817  0.7070908  0.7070908]]
    """
    gamma, beta = case.gamma, case.beta
    assert gamma is not None
    assert beta is not None
    inputs = case.x, gamma, beta, case.dy
    if name == OURS:
        # By NumPy alone: the bits are those of the kernels, which need compiling.
        by: dict[str, Any] = {"backend": "reference"}
        y, saved = layer_norm_forward(*inputs[:3], eps=case.eps, rounding="correct", **by)
        dx, dgamma, dbeta = layer_norm_backward(case.dy, saved, **by)
        assert dgamma is not None
        assert dbeta is not None
        return Results(None, y, dx, dgamma, dbeta)
    # What overflows from here on is the subject, and not an accident.
    with np.errstate(all="ignore"):
        if name != IN_FLOAT64:
            return _textbook(MOMENTS[name], *inputs, case.eps)
        x, gamma, beta, dy = (each.astype(np.float64) for each in inputs)
        wide = _textbook(MOMENTS[TEXTBOOK], x, gamma, beta, dy, case.eps)
        return Results._make(None if each is None else each.astype(case.x.dtype) for each in wide)


def _textbook(
    moments: Moments,
    x: FloatArray,
    gamma: FloatArray,
    beta: FloatArray,
    dy: FloatArray,
    eps: float,
) -> Results:
    """Run the textbook form on moments that may be worse or better than its own."""
    centred, variance = moments(x)
    rstd = (1 / np.sqrt(variance + eps))[..., np.newaxis]  # (D4)
    xhat = centred * rstd  # (D5)
    y = gamma * xhat + beta  # (D6)
    return Results(variance, y, *textbook.backward(dy, textbook.Saved(xhat, rstd, gamma)))
