"""Recipes of quantized norms: the steps that are rounded, and the way y is scaled.

A recipe is named like ``late/T``: where the norm rounds, and whether y is rounded to T, the type
of x, before y is scaled. A way describes the scaling of y. The way changes the codes of a few
elements in ten thousand, so that rows made for ways identify it.
"""

import numpy as np

from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.quantized.answers import QuantizedExpected
from truenorm.verify.norms.quantized.cases import ways_of_row
from truenorm.verify.norms.recipes import OTHER_SUM, RoundedComputation, RoundedSteps, shows_recipe
from truenorm.verify.operation import Case, RecipeResult, Results
from truenorm.verify.oracle import expected
from truenorm.verify.types import Float64s

NORMS: dict[str, tuple[RoundedSteps, str]] = {
    "late": ({}, "xhat*gain"),
    "early": ({"xhat": "x"}, "[xhat]_T*gain"),
    "product": ({"x*gain": "x"}, "[x*gain]_T*r"),
}
"""By name: the steps that a norm rounds to the type of x, and the formula of y."""
VIAS = {
    "direct": "y/s is encoded",
    "T": "[y]_T/s is encoded",
    "T, scaled too": "[[y]_T/s]_T is encoded",
}
WAYS = {
    "divide": "y/s",
    "reciprocal": "y*[1/s]",
    "qmax/amax": "y*[qmax/amax]",
}
SCALING_NOISE = 2.0**-22
"""The relative error of a product or a quotient in float32, with a rounded reciprocal."""


def norms_of(norm: Norm) -> list[str]:
    """Return the names in `NORMS` that apply: a centred row is not multiplied by the gain."""
    return [name for name in NORMS if name != "product" or not norm.centred]


def ways_of(norm: Norm) -> list[str]:
    """Return the names in `WAYS` that rows can distinguish."""
    quant = norm.quant
    if quant.scale == "per-token":
        return [*WAYS]
    return ["divide", "reciprocal"] if quant.is_static and quant.direction == "divide" else []


def recipes_of(norm: Norm) -> dict[str, str]:
    """Return the recipes that a subject may claim, with their formulas."""
    names = {
        f"{name}/{via}": f"y = {NORMS[name][1]}{' + beta' if norm.centred else ''}, {text}"
        for name in norms_of(norm)
        for via, text in VIAS.items()
    }
    with_way = {
        f"{name}, {way}": f"{text}; scaled by {WAYS[way]}"
        for name, text in names.items()
        if name.endswith("/T")
        for way in ways_of(norm)
    }
    return {**names, **with_way}


def recipe_results(norm: Norm, case: Case, results: Results) -> dict[str, RecipeResult]:
    """Return the codes of ordinary rows of 16 bits by every recipe, given the scales."""
    if not shows_recipe(case.dtype) or case.family != "normal":
        return {}
    answers = expected(case).given(results)
    assert isinstance(answers, QuantizedExpected)
    if answers.values["codes"] is None:
        return {}
    sums = {"": norm.normalized(case)}
    if norm.adds:
        other: Float64s = case.x.astype(np.float64) + case.residual.astype(np.float64)
        if norm.sum == "unrounded":
            other = (case.x + case.residual).astype(np.float64)
        sums[f", {OTHER_SUM[norm.sum]}"] = other
    return {
        f"{name}/{via}{of_sum}": _by_recipe(norm, case, rows, answers, name, via)
        for of_sum, rows in sums.items()
        for name in norms_of(norm)
        for via in VIAS
        if not of_sum or via != "T, scaled too"
    }


@np.errstate(all="ignore")
def _by_recipe(
    norm: Norm,
    case: Case,
    rows: Float64s,
    answers: QuantizedExpected,
    name: str,
    via: str,
) -> RecipeResult:
    computation = RoundedComputation(norm, case, rows)
    values, noise = computation.before_rounding(NORMS[name][0])
    if via != "direct":
        values, noise = computation.round(values, noise, case.dtype), np.zeros(1)
    unit, code = np.abs(answers.code_unit), answers.quant.code
    scaled = values / answers.code_unit
    # A power of two scales without an error.
    is_power = np.frexp(unit)[0] == 0.5
    noise = noise / unit + np.where(is_power, 0.0, SCALING_NOISE) * np.abs(scaled)
    if via == "T, scaled too":
        scaled, noise = computation.round(scaled, noise, case.dtype), np.zeros(1)
    low, high = code.nearest(scaled - noise), code.nearest(scaled + noise)
    decided = computation.decided & (low == high) & np.isfinite(unit) & (unit > 0)
    return RecipeResult(code.nearest(scaled), decided)


def way_results(norm: Norm, case: Case, results: Results) -> dict[str, RecipeResult]:
    """Return the codes of 16 bits by each way to scale, for rows in which [y]_T is gamma."""
    if not shows_recipe(case.dtype) or case.family != "ways":
        return {}
    answers = expected(case)
    assert isinstance(answers, QuantizedExpected)
    scale = case.inputs.get("scale")
    if scale is None:
        scale = answers.decoded("scale", results.get("scale"))
    if scale is None:
        return {}
    gain = case.gamma.astype(np.float64) + (norm.gain == "zero-centred")
    y = np.sign(norm.normalized(case)) * rounded(gain, case.dtype)
    code = norm.quant.code
    amax = np.abs(y).max(axis=1, keepdims=True)
    codes = ways_of_row(y, scale, amax, np.float32(code.largest), code)
    decided = np.ones(case.shape, bool)
    return {way: RecipeResult(codes[way], decided) for way in ways_of(norm)}
