"""Wrong kernels: a norm and its gradients, computed in float64 with one planted bug."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from truenorm.tools.arguments import require_choice
from truenorm.verify.formulas.rounding import rounded
from truenorm.verify.norms.error_patterns import SUMMANDS, mean_square, sum_of_rows
from truenorm.verify.norms.hypotheses import of_gradients, of_parameters, of_results
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.row_statistics import of_statistics
from truenorm.verify.norms.steps import DEFINITION, Changes, Step, Steps
from truenorm.verify.operation import Case
from truenorm.verify.sums import Way
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of

CONTROL = "right"
"""The name of the kernel without a bug."""
RECIPES = ("late", "early", "weight-typed")
"""Rounding recipes: xhat is not rounded, rounded to the type of x, or to that of gamma."""
USUAL_EPS = (1e-5, 1e-6)
EPS_TOLERANCE = 1e-2  # relative: 1e-5 in float16 is off by 1.4e-3
SAMPLE_EPS = 1e-5


@dataclass(frozen=True)
class PlantedBug:
    """The bug of a wrong kernel."""

    name: str  # short, for tables
    description: str  # completes "a kernel in which"
    changes: Changes = field(repr=False)
    backward: bool = False  # only gradients are wrong
    narrow: bool = False  # only 16-bit results are wrong
    by_bits: bool = False  # only the rounding is wrong


def planted_bugs(norm: Norm, recipe: str = "") -> list[PlantedBug]:
    """Return the bugs that can be planted in a norm, the most obvious first."""
    forward = [*_constant(norm), *_of_row(norm), *_of_parameters(norm), *_of_sum(norm)]
    return [*forward, *(_of_rounding(norm, recipe) if recipe else ()), *_of_gradients(norm)]


def recipe_changes(recipe: str) -> Changes:
    """Return the steps of a recipe that differ from those of *late*."""
    if recipe in ("", "late"):
        return {}
    require_choice("recipe", recipe, RECIPES)

    def y(at: Steps) -> Float64s:
        gamma, kind = at.case.inputs.get("gamma"), at.case.dtype
        if recipe == "weight-typed" and gamma is not None:
            kind = gamma.dtype.name
        return rounded(at["xhat"], kind) * at["gain"] + at["beta"]

    return {"y": y}


def _of_rounding(norm: Norm, recipe: str) -> list[PlantedBug]:
    """Return bugs in the rounding of y, which is wrong only if a recipe is required."""
    other = "early" if recipe == "late" else "late"
    steps = {"y": DEFINITION["y"], **recipe_changes(other)}
    bugs = [
        PlantedBug("recipe", f"the recipe is {other}, and not {recipe}", steps),
        *_hypotheses(of_results(norm), {"cut off": "y is truncated, not rounded"}),
    ]
    return [replace(bug, narrow=True, by_bits=True) for bug in bugs]


def _number(value: float) -> Step:
    return lambda at: np.full((at.count, 1), value)


def _zeros(step: str) -> Changes:
    return {step: lambda at: np.zeros(at.right(step).shape)}


def _constant(norm: Norm) -> list[PlantedBug]:
    """Return bugs that ignore the row, or its statistics."""
    rows = "x" if not norm.adds else "the sum"
    bugs = [PlantedBug("zeros", "y is 0", _zeros("y"))]
    for name, description, centre, square in (
        ("no reduction", "the statistics are left out: r = 1/sqrt(eps)", 0.0, 0.0),
        ("no reduction, normal", f"{rows} is taken to have mean 0 and variance 1", 0.0, 1.0),
        ("no reduction, uniform", f"{rows} is taken to be of U(0, 1)", 0.5, 1 / 12),
    ):
        changes = {"mean": _number(centre), "w": _number(square)}
        if not norm.centred:
            changes = {"w": _number(square + centre**2)}
        bugs.append(PlantedBug(name, description, changes))
    unnormalized = {"unnormalized": "the row is returned as it is"}
    return [*bugs, *_hypotheses(of_results(norm), unnormalized)]


def _hypotheses(table: Mapping[str, Changes], chosen: Mapping[str, str]) -> list[PlantedBug]:
    """Return hypotheses of the judge as bugs; `chosen` has their descriptions by name."""
    return [PlantedBug(name, text, table[text]) for name, text in chosen.items()]


def _of_row(norm: Norm) -> list[PlantedBug]:
    table = {**of_statistics(norm), **of_results(norm)}
    square = "the variance" if norm.centred else "the mean square"
    chosen = {
        "eps outside the root": "eps is added outside the root",
        "no eps": "eps is left out",
        "ddof = 1": f"{square} is divided by D - 1",
        "last block": "the last, partial block of 32 is left out of the sum of squares",
    }
    if norm.centred:
        chosen["no mean"] = "no mean is subtracted, as in RMS normalization"
        chosen["last element"] = "the last element of a row is left out of its mean"
    else:
        chosen["mean subtracted"] = "the mean is subtracted, as in layer normalization"
    bugs = _hypotheses(table, chosen)
    narrow = "squares are summed in the type of x, one by one"
    bugs.append(PlantedBug("narrow squares", narrow, {"w": _narrow(mean_square)}, narrow=True))
    bugs.insert(2, PlantedBug("other eps", "eps is 1e-5, or 1e-6 where it is 1e-5", {"eps": _eps}))
    if norm.centred:
        description = "the variance is mean(x^2) - mean(x)^2, in float32"
        bugs.append(PlantedBug("one-pass", description, {"w": _one_pass}))
    return bugs


def _narrow(summed: Callable[[Way, Steps], Float64s]) -> Step:
    """Return a step whose sum has partial sums in the type of x."""
    return lambda at: summed(Way(at.case.dtype), at)


def _eps(at: Steps) -> Float64s:
    usual, other = USUAL_EPS
    # The test may pass it rounded to the type of x.
    is_usual = math.isclose(at.case.eps, usual, rel_tol=EPS_TOLERANCE)
    return np.full(1, other if is_usual else usual)


def _one_pass(at: Steps) -> Float64s:
    rows = at["rows"].astype(np.float32)
    centre = rows.mean(axis=1, keepdims=True)
    square = (rows * rows).mean(axis=1, keepdims=True) - centre * centre
    return np.asarray(np.maximum(square, 0).astype(np.float64))


def _of_parameters(norm: Norm) -> list[PlantedBug]:
    offset = "the gain is 1 + gamma, and not gamma"
    if norm.gain == "zero-centred":
        offset = "the gain is gamma, and not 1 + gamma"
    chosen = {"no gamma": "gamma is left out", "gain offset": offset}
    if "beta" in norm.parameters:
        chosen["no beta"] = "beta is left out"
    return _hypotheses(of_results(norm), chosen)


def _of_sum(norm: Norm) -> list[PlantedBug]:
    if not norm.adds:
        return []
    chosen = {
        "no residual": "x alone is used, without the residual",
        "y for the sum": "y is returned as the sum",
    }
    zeros = PlantedBug("zeros for the sum", "the sum is 0", _zeros("sum"))
    return [zeros, *_hypotheses(of_results(norm), chosen)]


def _of_gradients(norm: Norm) -> list[PlantedBug]:
    table = {**of_gradients(norm), **of_parameters(norm)}
    chosen = {
        "dx without projection": "xhat*mean(g*xhat) is left out",
        "gamma after projection": "gamma is applied after the projection",
        "gamma twice in dx": "gamma is applied once more, after the projection",
        "dgamma of half the rows": "the second half of the rows is left out",
        "dgamma from x": f"it is summed from {'the sum' if norm.adds else 'x'}, not from xhat",
    }
    if norm.centred:
        chosen["dx without mean(g)"] = "mean(g) is left out"
        chosen["mean(g) twice in dx"] = "mean(g) is subtracted twice"
    if norm.adds:
        chosen["no dsum"] = "dsum is left out"
    gradients = ["dx", *(f"d{name}" for name in norm.parameters)]
    sums = {name: _narrow(partial(sum_of_rows, terms)) for name, terms in SUMMANDS.items()}
    narrow = "it is summed in the type of x, row by row"
    bugs = [
        *(PlantedBug(f"zeros for {name}", f"{name} is 0", _zeros(name)) for name in gradients),
        *_hypotheses(table, chosen),
        PlantedBug("narrow dgamma", narrow, sums, narrow=True),
    ]
    return [replace(bug, backward=True) for bug in bugs]


def case_of_inputs(
    norm: Norm, inputs: Mapping[str, Array | None], eps: float, size: int = 0
) -> Case:
    """Return inputs as a case with rows of `size` elements, by default of the last axis."""
    x = inputs["x"]
    assert x is not None
    size = size or x.shape[-1]
    rows: dict[str, Array | None] = {}
    for each in norm.inputs:
        array = inputs.get(each.name)
        if array is None and each.role in ("data", "gradient"):
            array = np.broadcast_to(np.zeros(1, x.dtype), x.shape)
        shape = (x.size // size, size) if each.role in ("data", "gradient") else (-1,)
        rows[each.name] = None if array is None else array.reshape(shape)
    return Case(norm, "call of a test", x.dtype.name, rows, eps)


def round_to(values: Float64s, dtype: np.dtype[Any]) -> Array:
    """Round once to a type, which may be unknown to the judge."""
    with np.errstate(all="ignore"):
        if dtype.name in FORMATS and dtype != values.dtype:
            values = rounded(values, dtype.name)
        result: Array = values.astype(dtype)
        return result


class Kernel:
    """A norm with or without a planted bug.

    Its `forward` and `backward` are those of a `truenorm.verify.Subject`.
    """

    sample_shape: tuple[int, ...] = (4, 67)
    """Rows on which a bug shows if it can: two halves, and a partial last block."""

    def __init__(self, norm: Norm, bug: PlantedBug | None = None, recipe: str = "") -> None:
        self.norm, self.bug, self.recipe = norm, bug, recipe
        self._changes = {**self._steps_of_recipe(), **(bug.changes if bug else {})}

    def _steps_of_recipe(self) -> Changes:
        """Return the steps that are not those of the definition; raise ValueError for a recipe."""
        return recipe_changes(self.recipe)

    @property
    def roundings(self) -> str:
        """The recipe, as one case can show it."""
        return self.recipe

    def without_bug(self) -> Self:
        """Return the right kernel."""
        return type(self)(self.norm, recipe=self.recipe)

    def steps(self, case: Case) -> Steps:
        """Return the steps of a case, which are computed on access."""
        return Steps(self.norm, case, self._changes)

    def result(self, steps: Steps, name: str) -> Float64s:
        """Return a result; dx is NaN in rows whose gradients are not finite."""
        values = steps[name]
        if name in ("dx", "dresidual"):
            finite = np.isfinite(steps["g"]).all(axis=1, keepdims=True)
            values = np.where(finite, values, np.nan)
        shape = steps.case.shape if self.norm.is_rows(name) else steps.case.shape[1:]
        return np.asarray(np.broadcast_to(values, shape))

    def wrong_results(self, dtype: str, arguments: Collection[str]) -> list[str]:
        """Return the results that the bug changes in a call with these arguments."""
        case, control = self._sample(dtype, arguments), self.without_bug()
        with np.errstate(all="ignore"):
            right, wrong = control.steps(case), self.steps(case)
            return [
                each.name
                for each in self.norm.outputs
                if each.like in arguments
                and not np.array_equal(
                    control.result(right, each.name),
                    self.result(wrong, each.name),
                    equal_nan=True,
                )
            ]

    def _sample(self, dtype: str, arguments: Collection[str]) -> Case:
        """Return a case with these arguments on which a bug shows if it can."""
        random = np.random.default_rng(0)
        inputs: dict[str, Array | None] = {}
        for each in self.norm.inputs:
            if each.name in arguments:
                of_rows = each.role != "parameter"
                shape = self.sample_shape if of_rows else self.sample_shape[1:]
                inputs[each.name] = round_to(random.normal(size=shape), dtype_of(dtype))
        return case_of_inputs(self.norm, inputs, SAMPLE_EPS)

    def as_array(
        self,
        name: str,  # noqa: ARG002 (of quantized kernels)
        values: Float64s,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> Array:
        """Return a result in a shape and a type."""
        return round_to(values, dtype).reshape(shape)

    def written_arguments(self, arguments: Collection[str]) -> dict[str, str]:
        """Return the arguments to which a function may write its results, by result."""
        return {"y": "out" if "out" in arguments else "x", "sum": "residual"}

    def forward(self, *arguments: Any) -> Any:
        """Return the results, then the inputs and eps for backward."""
        *arrays, eps = arguments
        inputs = dict(zip(self.norm.inputs_of("data", "parameter"), arrays, strict=True))
        return *self._results(inputs, eps, backward=False), (inputs, eps)

    def backward(self, *arguments: Any) -> tuple[Array | None, ...]:
        """Return the gradients."""
        *arrays, (inputs, eps) = arguments
        gradients = dict(zip(self.norm.inputs_of("gradient"), arrays, strict=True))
        return tuple(self._results({**inputs, **gradients}, eps, backward=True))

    def _results(
        self, inputs: Mapping[str, Array | None], eps: float, *, backward: bool
    ) -> list[Array | None]:
        like = {each.name: each.like for each in self.norm.outputs}
        steps = self.steps(case_of_inputs(self.norm, inputs, eps))
        results: list[Array | None] = []
        for name in self.norm.outputs_of(backward=backward):
            model = inputs[like[name]]
            if model is None:
                results.append(None)
                continue
            kind = dtype_of(self.norm.type_of(name, model.dtype.name))
            results.append(self.as_array(name, self.result(steps, name), model.shape, kind))
        return results
