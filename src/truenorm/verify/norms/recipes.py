"""Recipes: where a kernel rounds on the way to a result of 16 bits.

T is the type of x, W the type of gamma and V the type of y; [.] is a rounding, and other steps are
exact. Kernels compute in float32, whose errors decide a rounding of a number next to a midpoint:
such an element is undecided. The bits of decided elements show the recipe. Two recipes differ in a
fifth of all elements, so bits distinguish recipes where no tolerance does. In float32 the
arithmetic hides the recipe.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.rounding import float32_noise, operation_error, round_decided
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.steps import Step, Steps, mean
from truenorm.verify.operation import Case, RecipeResult, Results, RoundedResult
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff

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
"""Recipes that differ only in steps that an operation lacks have the same bits."""
RoundedSteps = Mapping[str, str]
"""The steps that are rounded before the result, each to the type of x, of gamma or of y."""
EVERY_STEP = (
    *("rows", "mean", "c", "squares", "w", "eps", "w + eps", "r"),
    *("xhat", "gain", "product", "sum"),
)
ROUNDED_STEPS: dict[str, RoundedSteps] = {
    "late": {},
    "early": {"xhat": "x"},
    "weight-typed": {"xhat": "gamma"},
    "product": {"product": "y"},
    "apex": {"xhat": "y", "product": "y"},
    "gain-rounded": {"gain": "gamma"},
    "early, gain-rounded": {"xhat": "x", "gain": "gamma"},
    "none": dict.fromkeys(EVERY_STEP, "x"),
}
OTHER_SUM = {"rounded": "of the unrounded sum", "unrounded": "of the rounded sum"}
INNER_ROUNDINGS: dict[str, tuple[str, ...]] = {
    "the mean is": ("mean",),
    "x/D is": ("x/D",),
    "x - mean is": ("c",),
    "each square is": ("squares",),
    "each square over D is": ("squares/D",),
    "the mean square is": ("w",),
    "the root of the mean square is": ("root",),
    "rstd is": ("r",),
    "the mean and rstd are": ("mean", "r"),
    "x - mean and rstd are": ("c", "r"),
    "x*gain is": ("x*gain",),
    "gamma is": ("gamma",),
    "beta is": ("beta",),
    "gamma and beta are": ("gamma", "beta"),
}
"""In words: steps that kernels round to the type of x, and that no recipe rounds."""
SAVED_STEPS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "rstd": ("r",),
    "the mean": ("mean",),
    "the mean and rstd": ("mean", "r"),
    "xhat": ("xhat",),
}
"""Steps of forward that backward may have in the type of x."""
BACKWARD_STEPS: dict[str, dict[str, tuple[str, ...]]] = {
    "dx": {
        **SAVED_STEPS,
        "gain*dy": ("g",),
        "gain*dy and xhat": ("g", "xhat"),
    },
    "dgamma": {
        **SAVED_STEPS,
        "dy*xhat": ("terms",),
        "xhat and dy*xhat": ("xhat", "terms"),
        "each partial sum": ("dgamma",),
        "the mean, rstd and each partial sum": ("mean", "r", "dgamma"),
    },
}
"""By output and recipe of backward: the steps that are rounded to the type of x."""


def shows_recipe(dtype: str) -> bool:
    """Return True if the bits of a type show a recipe."""
    return FORMATS[dtype].precision <= 11


def recipe_names(norm: Norm) -> dict[str, str]:
    """Return the recipes of a norm, each with its formula."""
    absent = set() if "beta" in norm.parameters else {"product"}
    if norm.gain != "zero-centred":
        absent |= {"gain-rounded", "early, gain-rounded"}
    return {name: text for name, text in RECIPES.items() if name not in absent}


def recipe_results(norm: Norm, case: Case, _: Results) -> dict[str, RecipeResult]:
    """Return y by every recipe, for ordinary rows of a type of 16 bits.

    Where a residual is added, add the recipes of the sum that is not declared.
    """
    if not shows_recipe(case.dtype) or case.family != "normal":
        return {}
    rows = norm.normalized(case)
    if not shows_recipe(norm.result_type or case.dtype):  # only a rounding to 16 bits shows
        return {"early": RoundedComputation(norm, case, rows).result(ROUNDED_STEPS["early"])}
    results = {
        name: RoundedComputation(norm, case, rows).result(ROUNDED_STEPS[name])
        for name in recipe_names(norm)
    }
    if norm.adds:
        other: Float64s = case.x.astype(np.float64) + case.residual.astype(np.float64)
        if norm.sum == "unrounded":
            other = (case.x + case.residual).astype(np.float64)
        for name in ("late", "early"):
            result = RoundedComputation(norm, case, other).result(ROUNDED_STEPS[name])
            results[f"{name}, {OTHER_SUM[norm.sum]}"] = result
    return results


def inner_roundings(norm: Norm, dtype: str) -> dict[Cause, RoundedResult]:
    """Return y with roundings to the type of x that no recipe has, by cause."""
    shown = shows_recipe(norm.result_type or dtype)
    names = [name for name in recipe_names(norm) if name != "none"] if shown else ["early"]
    absent = {"x*gain"} if norm.centred else {"mean", "x/D", "c"}
    absent |= {"gamma", "beta"} - {*norm.parameters}
    if unit_roundoff(norm.parameter_type or dtype) >= unit_roundoff(dtype):
        absent |= {*norm.parameters}
    roundings: dict[Cause, RoundedResult] = {}
    for words, inner in INNER_ROUNDINGS.items():
        for name in names:
            steps = {**dict.fromkeys(inner, "x"), **ROUNDED_STEPS[name]}
            # Where x*gain is rounded there is no xhat.
            if absent.isdisjoint(inner) and not {"x*gain", "xhat"} <= steps.keys():
                cause = Cause(
                    f"inner-rounding({', '.join(inner)}, {name})",
                    f"{words} rounded to {dtype}, and the rest follows {name}",
                )
                roundings[cause] = partial(_rounded_at, norm, steps)
    return roundings


def _rounded_at(norm: Norm, steps: RoundedSteps, case: Case) -> RecipeResult:
    return RoundedComputation(norm, case, norm.normalized(case)).result(steps)


def backward_results(norm: Norm, case: Case, output: str) -> dict[str, RecipeResult]:
    """Return dx or dgamma by every recipe of backward, for the cases of `recipe_results`."""
    if not shows_recipe(case.dtype) or case.family != "normal":
        return {}
    array = {"dx": case.x, "dgamma": case.gamma}.get(output)
    if array is None or array.dtype != case.x.dtype:  # a wider dgamma shows no rounding
        return {}
    return {
        name: _backward_result(norm, case, output, steps)
        for name, steps in BACKWARD_STEPS[output].items()
        if norm.centred or "mean" not in steps
    }


def _backward_result(norm: Norm, case: Case, output: str, steps: tuple[str, ...]) -> RecipeResult:
    decided = np.ones(case.shape, bool)

    def round_step(at: Steps, step: str, values: Float64s) -> Float64s:
        nonlocal decided
        rounded, known = round_decided(values, _backward_noise(at, step, values), case.dtype)
        decided = decided & known
        return rounded

    def add_rounded(at: Steps) -> Float64s:
        """Add one row after the other; each sum is rounded."""
        total = np.zeros(at.size)
        for row in at["terms"]:
            total = round_step(at, "dgamma", total + row)
        return total

    changes: dict[str, Step] = {
        step: lambda at, step=step: round_step(at, step, at.right(step))  # type: ignore[misc]
        for step in steps
    }
    if "dgamma" in steps:
        changes["dgamma"] = add_rounded
    at = Steps(norm, case, changes)
    with np.errstate(all="ignore"):
        result = round_step(at, output, at[output])
    # A sum over rows is undecided if one of its terms is.
    return RecipeResult(result, decided if output == "dx" else np.asarray(decided.all(axis=0)))


def _backward_noise(at: Steps, step: str, values: Float64s) -> Float64s:
    """Return how far float32 arithmetic may have moved the result of a step of backward."""
    noise = float32_noise(at.size)
    if step == "mean":
        return noise * mean(np.abs(at["rows"]))
    if step == "r":
        return noise * values
    if step == "g":  # one product
        return np.zeros(1)
    # A mean in one number moves xhat by as much as kappa.
    kappa = np.sqrt(mean(at["rows"] ** 2)) * at["r"] if at.norm.centred else at.column()
    sizes = np.abs(values if step == "xhat" else at["xhat"]) + kappa
    if step == "xhat":
        return noise * sizes
    if step == "dx":
        g = np.abs(at["g"])
        scale = at["r"] * (g + mean(g) + sizes * mean(g * sizes)) + np.abs(at["dsum"])
        return noise * scale
    terms = np.abs(at["dy"]) * sizes
    return noise * (terms if step == "terms" else terms.sum(axis=0))


class RoundedComputation:
    """y of a case in float64, rounded at some steps; tracks which elements float32 decides.

    The noise of a number is how far float32 arithmetic may have moved it.
    """

    def __init__(self, norm: Norm, case: Case, rows: Float64s) -> None:
        self.norm, self.case, self.rows = norm, case, rows
        self.types = {
            "x": case.dtype,
            "gamma": case.dtype if case.gamma is None else case.gamma.dtype.name,
            "y": norm.result_type or case.dtype,
        }
        self.size = rows.shape[1]
        self.noise = float32_noise(self.size)
        self.steps: RoundedSteps = {}
        self.decided = np.ones(rows.shape, bool)

    def before_rounding(self, steps: RoundedSteps) -> tuple[Float64s, Float64s]:
        """Return y with some steps rounded, before its own rounding, and the noise of y."""
        self.steps = steps
        with np.errstate(all="ignore"):
            values, noise = self._product()
            beta = self._parameter("beta", 0.0)
            noise = noise + operation_error(values) * (beta != 0)
            return self._rounded("sum", values + beta, noise)

    def result(self, steps: RoundedSteps) -> RecipeResult:
        """Return y with some steps rounded."""
        values, noise = self.before_rounding(steps)
        with np.errstate(all="ignore"):
            return RecipeResult(self.round(values, noise, self.types["y"]), self.decided)

    def _product(self) -> tuple[Float64s, Float64s]:
        """Return xhat times the gain, and its noise."""
        gain = self._parameter("gamma", 1.0)
        gain_noise = np.zeros(1)
        if self.norm.gain == "zero-centred" and self.case.gamma is not None:
            gain = gain + 1
            gain_noise = operation_error(gain)
        gain, gain_noise = self._rounded("gain", gain, gain_noise)
        c, c_noise = self._deviations()
        r, r_noise = self._inverse_root(c, c_noise)
        if "x*gain" in self.steps:
            scaled, _ = self._rounded("x*gain", c * gain, c_noise * np.abs(gain))
            return scaled * r, np.abs(scaled) * r_noise + operation_error(scaled * r)
        xhat = c * r
        noise = np.abs(c) * r_noise + r * c_noise + operation_error(xhat)
        xhat, noise = self._rounded("xhat", xhat, noise)
        noise = noise * np.abs(gain) + np.abs(xhat) * gain_noise
        return self._rounded("product", xhat * gain, noise)

    def _parameter(self, name: str, default: float) -> Float64s:
        array: Array | None = self.case.inputs.get(name)
        values = np.full(1, default) if array is None else array.astype(np.float64)
        return self._rounded(name, values, np.zeros(1))[0]

    def _deviations(self) -> tuple[Float64s, Float64s]:
        """Return the deviations that are divided by the root, and their noise."""
        rows, nothing = self._rounded("rows", self.rows, np.zeros(1))
        if not self.norm.centred:
            return rows, nothing
        terms = self._rounded("x/D", rows / self.size, operation_error(rows / self.size))[0]
        mean = terms.sum(axis=1, keepdims=True)
        noise = self.noise * np.abs(terms).sum(axis=1, keepdims=True)
        mean, noise = self._rounded("mean", mean, noise)
        c = rows - mean
        return self._rounded("c", c, noise + operation_error(c))

    def _inverse_root(self, c: Float64s, c_noise: Float64s) -> tuple[Float64s, Float64s]:
        """Return 1/sqrt(mean(c^2) + eps) of each row as a column, and its noise."""
        squares = self._rounded("squares", c * c, 2 * np.abs(c) * c_noise)[0]
        terms = self._rounded("squares/D", squares / self.size, self.noise * squares / self.size)[
            0
        ]
        w = terms.sum(axis=1, keepdims=True)
        w, noise = self._rounded("w", w, self.noise * w)
        eps = self._rounded("eps", np.full(1, self.case.eps), np.zeros(1))[0]
        w, noise = self._rounded("w + eps", w + eps, noise)
        root, noise = self._rounded("root", np.sqrt(w), noise / np.sqrt(w))
        r = 1 / root
        # Two divisions and a root: more than an operation, and far less than a sum.
        noise = noise * r * r + 4 * operation_error(r)
        return self._rounded("r", r, noise)

    def _rounded(self, step: str, values: Float64s, noise: Float64s) -> tuple[Float64s, Float64s]:
        """Return the result of a step and its noise; a rounding to 16 bits removes the noise."""
        if step not in self.steps:
            return values, noise
        kind = self.types[self.steps[step]]
        if not shows_recipe(kind):  # a rounding to float32 is noise itself
            return values, noise + operation_error(values)
        return self.round(values, noise, kind), np.zeros(1)

    def round(self, values: Float64s, noise: Float64s, kind: str) -> Float64s:
        """Round to a type, and mark the elements whose rounding the noise decides."""
        rounded, decided = round_decided(values, noise, kind)
        self.decided &= decided
        return rounded
