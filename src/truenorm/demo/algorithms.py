"""The contestants: ways to normalize a row that are the same in exact arithmetic.

They differ in how they centre a row and in what they take for its variance. All else, (D4) to
(D9) and (D17) of docs/derivation.md, is the same code. Each works in the type of x throughout:
arrays of that type, with Python numbers as the only scalars, so that NumPy promotes nothing. (Of
float16, NumPy takes the mean in float32 and rounds that; sums over rows it takes in float16.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from truenorm import textbook, variance_forms
from truenorm.demo.errors import Results, rounded_means, rounded_variances
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.textbook import FloatArray
from truenorm.verify.operation import Case

__all__ = ["ALGORITHMS", "OURS", "contestants", "run"]

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
    >>> from truenorm.verify.operations.layer_norm import layer_norm_case
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
