"""Why a finding matters, and what to try: by check, operation, slope and input."""

import math
from typing import NamedTuple

import numpy as np

from truenorm.verify.diagnosis.patterns import computed_in
from truenorm.verify.grading.symptoms import Symptom
from truenorm.verify.inputs.families import LARGE_VALUES
from truenorm.verify.norms.enclosures import largest_kappa
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.types import FORMATS, unit_roundoff

MANY_ROWS = 64
"""Rows from which the error of a sum over rows comes from adding them."""
NO_DIGIT_LEFT = 0.1
"""Relative error from which a one-pass variance may be negative."""
NO_OFFSET = 1.25
"""Largest kappa of rows whose errors an offset hardly magnifies."""


class Advice(NamedTuple):
    """Why a finding matters, and what to try."""

    matters: str
    to_try: str


WITH_CAUSE = "start with the likely cause: it explains every failing case it was compared with"
QUANTIZED = ("codes", "scale")
"""Outputs that have advice beside that of their check."""
BY_HAND = "run the reproducer, and compare each intermediate result with float64"
SCALE_ROWS = "divide each row by a power of two near its largest element, or square in float64"
ACCURACY_ADVICE = {
    "ordinary": Advice("plain random rows show it: no special input is needed", BY_HAND),
    "large values": Advice(
        "inputs of this size occur in models: a few activations are in the thousands", BY_HAND
    ),
    "zeros": Advice(
        "rows of padding are zeros: a NaN there spreads to everything that reads them",
        "set the scale of a group of zeros to 1, or divide only where it is above zero",
    ),
    "codes": Advice(
        "a matrix product reads these codes: no later step corrects them",
        "compare y, y over the scale and its rounding with float64, one after the other",
    ),
    "scale": Advice(
        "a scale that is too large loses digits of its group; one too small saturates it",
        "compare the largest |y| of the group, and the division by qmax, with float64",
    ),
    "finite": Advice(
        "one such element makes the loss NaN; a zero silently stops learning", BY_HAND
    ),
    "overflow": Advice(
        "squares of this size overflow, and the row becomes zeros or NaN", SCALE_ROWS
    ),
    "underflow": Advice(
        "squares of this size underflow, and only eps is left of them", SCALE_ROWS
    ),
    "negative variance": Advice(
        "mean(x^2) - mean^2 can be negative after rounding, and its root is NaN",
        "subtract the mean before squaring: var = mean((x - mean)^2)",
    ),
    "squares": Advice(
        "rows with an offset lose digits: the error grows with kappa squared",
        "subtract the mean before squaring: var = mean((x - mean)^2), or Welford",
    ),
    "mean": Advice(
        "rows with an offset lose digits: the error grows with kappa",
        "keep the mean in a wider type, or subtract the mean of x - mean once more",
    ),
    "column": Advice(
        "gradients over many rows lose digits",
        "add rows in blocks or pairwise, or in a wider type",
    ),
    "growth": Advice(
        "digits are lost where many terms are added or where they cancel",
        "add in blocks or pairwise, or in a wider type",
    ),
}
"""By check of accuracy, or by the reason that the input and the slope suggest."""
OF_OFFSETS = ("squares", "mean")
"""Reasons that the slope suggests, about rows with an offset."""
ADVICE = {
    "unsupported": Advice(
        "what a kernel refuses was not judged: its users get the exception",
        "judge what it supports: --dtype TYPE, or one eps, as --operation rms_norm,eps=1e-5",
    ),
    "raised": Advice(
        "a caller with this input gets no result",
        "run the reproducer: it makes the same call alone",
    ),
    "shape": Advice(
        "code that uses the result reads wrong elements, or fails",
        "return y and dx in the shape of x, dgamma and dbeta in the shape of gamma",
    ),
    "result": Advice(
        "the caller gets nothing to compute with",
        "return one array for each result, of the type of x or of its parameter",
    ),
    "type": Advice(
        "memory use doubles, or digits are lost, without the caller asking for it",
        "cast results to the type of x, and gradients of parameters to their types",
    ),
    "rounding": Advice(
        "bits differ from those of every correctly rounded implementation",
        "compute in a wider type and round once; or require less with --require",
    ),
    "recipe": Advice(
        "weights were trained with other roundings: two programs will not agree to the bit",
        "round where the recipe rounds, or declare another one with --recipe",
    ),
    "floor": Advice(
        "codes of small activations are coarser in one case than in another",
        "choose one least scale, and use it for every group",
    ),
    "biased": Advice(
        "errors of one sign add up: the residual stream drifts from layer to layer",
        "round to nearest, ties to even, when the sum is stored",
    ),
    "special": Advice(
        "a NaN that vanishes hides a broken batch; one that spreads spoils other rows",
        "pass NaN and infinity through the arithmetic: max, where and clamp drop them",
    ),
    "subnormal": Advice(
        "small gradients become zero and do not contribute to training",
        "compile without flushing to zero (-ftz=false, no fast math); scale what underflows",
    ),
    "repeat": Advice(
        "runs are not reproducible, and bugs cannot be found by running again",
        "sum in a fixed order: no atomics, no uninitialized buffer",
    ),
    "sums": Advice(
        "two runs of one training step give different weights, and diverge from there",
        "add partial sums in a fixed order, in stages if necessary: no atomics",
    ),
    "history": Advice(
        "a call is right in its own test and wrong in a program that makes others before it",
        "look for buffers and caches kept between calls: clear them, or key them by all inputs",
    ),
    "position": Advice(
        "the result of an input depends on its position: it cannot be cached",
        "sum every row in the same order, also in a partial block at the end",
    ),
    "batch": Advice(
        "the result of a request depends on other requests: training and inference differ",
        "choose blocks and orders by D alone, never by the number of rows",
    ),
    "padding": Advice(
        "the amount of padding in a batch changes its results",
        "let no row depend on others: no maximum, flag or branch over a whole block",
    ),
    "idle": Advice(
        "the gradient of a batch depends on the amount of padding in it",
        "sum rows exactly, or one after the other: block limits move with their number",
    ),
    "layout": Advice(
        "autograd passes transposed and expanded gradients, which are misread or rejected",
        "use all strides, or copy non-contiguous gradients first",
    ),
    "large": Advice(
        "long sequences are wrong from some row on",
        "compute offsets in 64 bits, and let the grid cover all rows",
    ),
    "inputs": Advice(
        "the caller continues with other numbers than it passed",
        "write to a new array, or copy the input first",
    ),
    "overwritten": Advice(
        "a result that the caller stores changes later",
        "return a new array from each call, not a shared buffer",
    ),
    "stale": Advice(
        "with two layers, or with recomputation, gradients are those of another call",
        "return all that backward needs from forward; do not store it in the module",
    ),
    "spent": Advice(
        "a retained graph gives different gradients the second time",
        "do not modify the saved state in backward",
    ),
}
"""By check."""


def advice(symptom: Symptom, slope: float | None, *, named: bool) -> Advice:
    """Return why a symptom matters and what to try; a likely cause that is named comes first."""
    by_check = ADVICE.get(symptom.guard) or _accuracy_advice(symptom, slope)
    return by_check._replace(to_try=WITH_CAUSE) if named else by_check


def _accuracy_advice(symptom: Symptom, slope: float | None) -> Advice:
    """Return the advice of a reason; advice about an offset does not help rows without one."""
    reason = _reason(symptom, slope)
    chosen = ACCURACY_ADVICE[reason]
    if reason in OF_OFFSETS and largest_kappa(symptom.case) <= NO_OFFSET:
        sums = ACCURACY_ADVICE["growth"]
        return Advice(
            f"{sums.matters}; {chosen.matters}",
            f"{sums.to_try}; for rows with an offset, {chosen.to_try}",
        )
    return chosen


def _reason(symptom: Symptom, slope: float | None) -> str:
    """Return a key of `ACCURACY_ADVICE` for a symptom of accuracy."""
    case, guard = symptom.case, symptom.guard
    centred = case.operation.centred
    if symptom.output in QUANTIZED:
        exact = expected(case).wide[symptom.output][symptom.at] if symptom.at else 1.0
        return "zeros" if exact == 0 else symptom.output
    if guard == "finite":
        size = _square_size(symptom)
        if size:
            return size
        return "negative variance" if centred and _may_be_negative(case) else "finite"
    is_sum = not case.operation.is_rows(symptom.output)
    if guard == "growth" and is_sum and case.shape[0] >= MANY_ROWS:
        return "column"
    if guard == "growth" and centred and slope is not None and slope >= 0.5:
        return "squares" if slope >= 1.5 else "mean"
    if guard == "ordinary" and case.family == LARGE_VALUES:
        return "large values"
    return guard


def _may_be_negative(case: Case) -> bool:
    """Return True if mean(x^2) - mean^2 of a row has a rounding error as large as itself."""
    return largest_kappa(case) ** 2 * unit_roundoff(computed_in(case)) >= NO_DIGIT_LEFT


def _square_size(symptom: Symptom) -> str:
    """Return overflow or underflow if the squares of a row leave the range of the kernel."""
    case = symptom.case
    format_ = FORMATS[computed_in(case)]
    row = symptom.at[:1] if case.operation.is_rows(symptom.output) else ()
    sizes = np.abs(case.first.astype(np.float64)[row])
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    if not largest:
        return ""
    power = 2 * math.log2(largest) + math.log2(case.shape[1])
    if power >= format_.limit:
        return "overflow"
    return "underflow" if 2 * math.log2(largest) <= -format_.limit else ""
