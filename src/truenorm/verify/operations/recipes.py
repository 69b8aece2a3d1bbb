"""Where a kernel rounds on the way: the bits that each recipe gives, for types of 16 bits.

T is the type of x, W that of gamma and V that of y; [.] is a rounding, and everything else is
exact. Kernels compute in float32, which moves a rounding to 16 bits in one element of thousands;
two recipes differ in a fifth of all elements. So bits tell them apart, where no tolerance does.
In float32 the arithmetic hides the recipe.
"""

from collections.abc import Callable, Mapping

import numpy as np

from truenorm.verify.operation import Case, RecipeResult
from truenorm.verify.operations.definition import Definition
from truenorm.verify.types import FORMATS, Float64s, ulps_of

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
"""What each of them is; those that differ in steps that an operation lacks have the same bits."""
OTHER_SUM = {"rounded": "of the unrounded sum", "unrounded": "of the rounded sum"}
SURE = 2.0**-40
"""What float64 may get wrong, of a number: nearer to a midpoint than this, an element is left."""


def shows_recipe(dtype: str) -> bool:
    """Tell whether the bits of a type show a recipe."""
    return FORMATS[dtype].precision <= 11


def recipe_names(norm: Definition) -> dict[str, str]:
    """Return the names of the recipes of a norm, and what they are."""
    return {name: RECIPES[name] for name in _recipes(norm)}


def recipe_results(norm: Definition, case: Case) -> dict[str, RecipeResult]:
    """Return y of a case by every recipe.

    Where a residual is added, also those of the sum that is not the declared one.
    """
    rows, recipes = norm.normalized(case), _recipes(norm)
    if not shows_recipe(norm.result_type or case.dtype):  # only what is rounded to 16 bits shows
        return {"early": _early(_Steps(norm, case, rows))}
    found = {name: recipe(_Steps(norm, case, rows)) for name, recipe in recipes.items()}
    if norm.adds:
        rounded = (case.x + case.residual).astype(np.float64)
        whole = case.x.astype(np.float64) + case.residual.astype(np.float64)
        other = whole if norm.sum == "rounded" else rounded
        for name in ("late", "early"):
            bits = recipes[name](_Steps(norm, case, other))
            found[f"{name}, {OTHER_SUM[norm.sum]}"] = bits
    return found


class _Steps:
    """The steps of a norm, in float64; a number that is nearly a midpoint is not known."""

    def __init__(self, norm: Definition, case: Case, rows: Float64s) -> None:
        self.norm, self.case, self.rows = norm, case, rows
        self.type_of_x = case.dtype
        self.type_of_gamma = case.dtype if case.gamma is None else case.gamma.dtype.name
        self.type_of_y = norm.result_type or case.dtype
        beta = case.inputs.get("beta")
        self.beta = np.zeros(1) if beta is None else beta.astype(np.float64)
        self.offset = float(norm.gain == "zero-centred")
        gamma = np.ones(1) - self.offset if case.gamma is None else case.gamma.astype(np.float64)
        self.gain: Float64s = gamma + self.offset
        self.decided = np.ones(rows.shape, bool)

    def xhat(self) -> Float64s:
        c = self.rows - self.rows.mean(axis=1, keepdims=True) if self.norm.centred else self.rows
        root = np.sqrt((c * c).mean(axis=1, keepdims=True) + self.case.eps)
        return np.asarray(c / root)

    def rounded(self, numbers: Float64s, kind: str) -> Float64s:
        """Round to a type, and note what is too near to a midpoint."""
        ulps = ulps_of(numbers, kind)
        places = np.rint(numbers / ulps)
        self.decided &= np.broadcast_to(
            np.rint(numbers * (1 - SURE) / ulps) == np.rint(numbers * (1 + SURE) / ulps),
            self.decided.shape,
        )
        return np.asarray(places * ulps)

    def exactly(self, numbers: Float64s, kind: str) -> Float64s:
        """Round numbers that float64 has exactly: a midpoint goes to the even neighbour."""
        ulps = ulps_of(numbers, kind)
        return np.asarray(np.rint(numbers / ulps) * ulps)

    def rounded_gain(self) -> Float64s:
        return self.exactly(self.gain, self.type_of_gamma)

    def result(self, numbers: Float64s) -> RecipeResult:
        values = self.rounded(numbers, self.type_of_y)
        return RecipeResult(values, self.decided)


def _late(steps: _Steps) -> RecipeResult:
    return steps.result(steps.xhat() * steps.gain + steps.beta)


def _early(steps: _Steps) -> RecipeResult:
    xhat = steps.rounded(steps.xhat(), steps.type_of_x)
    return _ended(steps, xhat, steps.gain)


def _ended(steps: _Steps, xhat: Float64s, gain: Float64s) -> RecipeResult:
    """Return [xhat*gain + beta]_V of numbers that are rounded already."""
    return RecipeResult(steps.exactly(xhat * gain + steps.beta, steps.type_of_y), steps.decided)


def _weight_typed(steps: _Steps) -> RecipeResult:
    return _ended(steps, steps.rounded(steps.xhat(), steps.type_of_gamma), steps.gain)


def _product(steps: _Steps) -> RecipeResult:
    product = steps.rounded(steps.xhat() * steps.gain, steps.type_of_y)
    return RecipeResult(steps.exactly(product + steps.beta, steps.type_of_y), steps.decided)


def _apex(steps: _Steps) -> RecipeResult:
    kind = steps.type_of_y
    product = steps.exactly(steps.rounded(steps.xhat(), kind) * steps.gain, kind)
    return RecipeResult(steps.exactly(product + steps.beta, kind), steps.decided)


def _gain_rounded(steps: _Steps) -> RecipeResult:
    return steps.result(steps.xhat() * steps.rounded_gain() + steps.beta)


def _early_gain_rounded(steps: _Steps) -> RecipeResult:
    xhat = steps.rounded(steps.xhat(), steps.type_of_x)
    return _ended(steps, xhat, steps.rounded_gain())


def _none(steps: _Steps) -> RecipeResult:
    """Round after each step, as arrays of T do; a mean is taken of all its terms at once."""
    kind = steps.type_of_x

    def t(numbers: Float64s) -> Float64s:
        return steps.exactly(numbers, kind)

    c = t(steps.rows)
    if steps.norm.centred:
        c = t(c - t(c.mean(axis=1, keepdims=True)))
    w = t(t(t(c * c).mean(axis=1, keepdims=True)) + t(np.asarray(steps.case.eps)))
    with np.errstate(divide="ignore", invalid="ignore"):
        xhat = t(c * t(1 / np.sqrt(w)))
        product = t(xhat * t(steps.gain))
        return RecipeResult(steps.exactly(t(product + steps.beta), steps.type_of_y), steps.decided)


def _recipes(norm: Definition) -> Mapping[str, Callable[[_Steps], RecipeResult]]:
    """Return the recipes of a norm."""
    found = {"late": _late, "early": _early, "weight-typed": _weight_typed}
    if "beta" in norm.parameters:
        found["product"] = _product
    found["apex"] = _apex
    if norm.gain == "zero-centred":
        found["gain-rounded"] = _gain_rounded
        found["early, gain-rounded"] = _early_gain_rounded
    return {**found, "none": _none}
