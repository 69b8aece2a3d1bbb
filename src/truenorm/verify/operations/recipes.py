"""Recipes: where a kernel rounds on the way to a result of 16 bits.

T is the type of x, W that of gamma and V that of y; [.] is a rounding, and all else is exact.
Kernels compute in float32, which changes a rounding to 16 bits in one element of thousands. Two
recipes differ in a fifth of all elements, so bits tell them apart where no tolerance does. In
float32 the arithmetic hides the recipe.
"""

from typing import TYPE_CHECKING

import numpy as np

from truenorm.verify.operation import Case, RecipeResult
from truenorm.verify.types import FORMATS, Float64s, ulps_of

if TYPE_CHECKING:
    from truenorm.verify.operations.norms import Norm

RECIPES = {
    "late": "[xhat*gain + beta]_V: one rounding, at the end",
    "early": "[[xhat]_T*gain + beta]_V: xhat is rounded to the type of x",
    "weight-typed": "[[xhat]_W*gain + beta]_V: xhat is rounded to the type of gamma",
    "product": "[[xhat*gain]_V + beta]_V: the product is rounded, then the sum",
    "apex": "[[[xhat]_V*gain]_V + beta]_V: all three steps are rounded to the type of y",
    "gain-rounded": "[xhat*[1 + gamma]_W + beta]_V: the gain is rounded to the type of gamma",
    "early, gain-rounded": "[[xhat]_T*[1 + gamma]_W + beta]_V",
    "none": "every step in T: squares, their mean, eps, the root, xhat, the product, the sum",
}
"""Those that differ only in steps that an operation lacks have the same bits."""
ROUNDED_STEPS: dict[str, dict[str, str]] = {
    "late": {},
    "early": {"xhat": "x"},
    "weight-typed": {"xhat": "gamma"},
    "product": {"product": "y"},
    "apex": {"xhat": "y", "product": "y"},
    "gain-rounded": {"gain": "gamma"},
    "early, gain-rounded": {"xhat": "x", "gain": "gamma"},
}
"""The steps that are rounded before the result, each to the type of x, of gamma or of y."""
OTHER_SUM = {"rounded": "of the unrounded sum", "unrounded": "of the rounded sum"}
MARGIN = 2.0**-40
"""The relative error of float64: an element nearer to a midpoint than this is undecided."""


def shows_recipe(dtype: str) -> bool:
    """Return True if the bits of a type show a recipe."""
    return FORMATS[dtype].precision <= 11


def recipe_names(norm: "Norm") -> dict[str, str]:
    """Return the recipes of a norm, each with its formula."""
    absent = set() if "beta" in norm.parameters else {"product"}
    if norm.gain != "zero-centred":
        absent |= {"gain-rounded", "early, gain-rounded"}
    return {name: text for name, text in RECIPES.items() if name not in absent}


def recipe_results(norm: "Norm", case: Case) -> dict[str, RecipeResult]:
    """Return y of a case by every recipe.

    Where a residual is added, also those of the sum that is not the declared one.
    """
    rows = norm.normalized(case)
    if not shows_recipe(norm.result_type or case.dtype):  # only a rounding to 16 bits shows
        return {"early": _Computation(norm, case, rows).result("early")}
    results = {name: _Computation(norm, case, rows).result(name) for name in recipe_names(norm)}
    if norm.adds:
        other: Float64s = case.x.astype(np.float64) + case.residual.astype(np.float64)
        if norm.sum == "unrounded":
            other = (case.x + case.residual).astype(np.float64)
        for name in ("late", "early"):
            result = _Computation(norm, case, other).result(name)
            results[f"{name}, {OTHER_SUM[norm.sum]}"] = result
    return results


class _Computation:
    """y of a case in float64, rounded by a recipe; tracks which elements float64 decides."""

    def __init__(self, norm: "Norm", case: Case, rows: Float64s) -> None:
        self.norm, self.case, self.rows = norm, case, rows
        self.types = {
            "x": case.dtype,
            "gamma": case.dtype if case.gamma is None else case.gamma.dtype.name,
            "y": norm.result_type or case.dtype,
        }
        beta = case.inputs.get("beta")
        self.beta = np.zeros(1) if beta is None else beta.astype(np.float64)
        self.gain: Float64s = np.ones(1)
        if case.gamma is not None:
            self.gain = case.gamma.astype(np.float64) + float(norm.gain == "zero-centred")
        self.decided = np.ones(rows.shape, bool)

    def result(self, recipe: str) -> RecipeResult:
        """Return y by a recipe."""
        y = self._in_type_of_x() if recipe == "none" else self._rounded_at(ROUNDED_STEPS[recipe])
        return RecipeResult(y, self.decided)

    def _rounded_at(self, steps: dict[str, str]) -> Float64s:
        """Return y; the first rounding is of irrational numbers, later ones are of exact ones."""
        rounding = self._round_inexact
        gain = self._round(self.gain, steps["gain"]) if "gain" in steps else self.gain
        values = self._xhat()
        if "xhat" in steps:
            values, rounding = rounding(values, steps["xhat"]), self._round
        values = values * gain
        if "product" in steps:
            values, rounding = rounding(values, steps["product"]), self._round
        return rounding(values + self.beta, "y")

    def _xhat(self) -> Float64s:
        c = self.rows - self.rows.mean(axis=1, keepdims=True) if self.norm.centred else self.rows
        root = np.sqrt((c * c).mean(axis=1, keepdims=True) + self.case.eps)
        return np.asarray(c / root)

    def _round(self, numbers: Float64s, like: str) -> Float64s:
        """Round exact float64 numbers to the type of x, gamma or y, ties to even."""
        ulps = ulps_of(numbers, self.types[like])
        return np.asarray(np.rint(numbers / ulps) * ulps)

    def _round_inexact(self, numbers: Float64s, like: str) -> Float64s:
        """Round numbers with an error; elements next to a midpoint are undecided."""
        ulps = ulps_of(numbers, self.types[like])
        same = np.rint(numbers * (1 - MARGIN) / ulps) == np.rint(numbers * (1 + MARGIN) / ulps)
        self.decided &= np.broadcast_to(same, self.decided.shape)
        return self._round(numbers, like)

    def _in_type_of_x(self) -> Float64s:
        """Return y with each step rounded to the type of x; a mean is rounded once."""

        def t(numbers: Float64s) -> Float64s:
            return self._round(numbers, "x")

        c = t(self.rows)
        if self.norm.centred:
            c = t(c - t(c.mean(axis=1, keepdims=True)))
        w = t(t(t(c * c).mean(axis=1, keepdims=True)) + t(np.asarray(self.case.eps)))
        with np.errstate(divide="ignore", invalid="ignore"):
            xhat = t(c * t(1 / np.sqrt(w)))
            product = t(xhat * t(self.gain))
            return self._round(t(product + self.beta), "y")
