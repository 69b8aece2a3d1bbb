"""The wrong kernels: a norm and its gradients in float64 with one step done otherwise."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.definition import Definition
from truenorm.verify.operations.hypotheses import (
    of_gradients,
    of_parameters,
    of_results,
    of_statistics,
)
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.steps import DEFINITION, Changes, Step, Steps, rounded
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of

CONTROL = "right"
"""The name of the kernel without a fault."""
RECIPES = ("late", "early", "weight-typed")
"""Those that a kernel may be said to have: xhat rounded not at all, to the type of x, of gamma."""
USUAL_EPS = (1e-5, 1e-6)
NEAR = 1e-2
"""So near is an eps to the one that is meant: what float16 has for 1e-5 is off by 1.4e-3."""


@dataclass(frozen=True)
class Planted:
    """A wrong kernel.

    Attributes
    ----------
    name : str
        For tables and programs.
    words : str
        What is wrong with it: it goes on after "a kernel in which".
    changes : mapping
        The steps that are done otherwise.
    backward : bool
        Whether only its gradients are wrong.
    narrow : bool
        Whether it is wrong for types of 16 bits alone.
    by_bits : bool
        Whether its bits are wrong, and no number is far off.
    """

    name: str
    words: str
    changes: Changes = field(repr=False)
    backward: bool = False
    narrow: bool = False
    by_bits: bool = False


def planted_kernels(norm: Definition, recipe: str = "") -> list[Planted]:
    """Return the wrong kernels of a norm, the plainest first."""
    found = [*_constant(norm), *_of_row(norm), *_of_parameters(norm), *_of_sum(norm)]
    return [*found, *(_of_rounding(norm, recipe) if recipe else ()), *_of_gradients(norm)]


def rounding_of(recipe: str) -> Changes:
    """Return the steps of a recipe that are not those of *late*."""
    if recipe in ("", "late"):
        return {}
    if recipe not in RECIPES:
        raise ValueError(f"recipe is {recipe!r}; an audit knows {', '.join(RECIPES)}")

    def y(at: Steps) -> Float64s:
        gamma, kind = at.case.inputs.get("gamma"), at.case.dtype
        if recipe == "weight-typed" and gamma is not None:
            kind = gamma.dtype.name
        return rounded(at["xhat"], kind) * at["gain"] + at["beta"]

    return {"y": y}


def _of_rounding(norm: Definition, recipe: str) -> list[Planted]:
    """Return kernels that round y otherwise: wrong only where somebody says what is right."""
    other = "early" if recipe == "late" else "late"
    words = f"the recipe is {other}, and not {recipe}"
    steps = {"y": DEFINITION["y"], **rounding_of(other)}
    cut = _taken("cut off", of_results(norm), "y is cut off, not rounded")
    return [
        replace(each, narrow=True, by_bits=True) for each in (Planted("recipe", words, steps), cut)
    ]


def _number(value: float) -> Step:
    return lambda at: np.full((at.count, 1), value)


def _zeros(step: str) -> Changes:
    return {step: lambda at: np.zeros(at.right(step).shape)}


def _constant(norm: Definition) -> list[Planted]:
    """Return kernels whose results do not depend on the row, or not on all of it."""
    rows = "x" if not norm.adds else "the sum"
    found = [Planted("zeros", "y is 0", _zeros("y"))]
    for name, words, centre, square in (
        ("no reduction", "the statistics are left out: r = 1/sqrt(eps)", 0.0, 0.0),
        ("no reduction, normal", f"{rows} is taken to have mean 0 and variance 1", 0.0, 1.0),
        ("no reduction, uniform", f"{rows} is taken to be of U(0, 1)", 0.5, 1 / 12),
    ):
        changes = {"mean": _number(centre), "w": _number(square)}
        if not norm.centred:
            changes = {"w": _number(square + centre**2)}
        found.append(Planted(name, words, changes))
    return [*found, _taken("unnormalized", of_results(norm), "the row is returned as it is")]


def _taken(name: str, table: Mapping[str, Changes], words: str) -> Planted:
    """Return a kernel of which a hypothesis of the judge is true."""
    return Planted(name, words, table[words])


def _of_row(norm: Definition) -> list[Planted]:
    """Return kernels with other statistics."""
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
    found = [_taken(name, table, words) for name, words in chosen.items()]
    words = "squares are added up in the type of x, one by one"
    found.append(replace(_taken("narrow squares", table, words), narrow=True))
    found.insert(2, Planted("other eps", "eps is 1e-5, or 1e-6 where it is 1e-5", {"eps": _eps}))
    if norm.centred:
        words = "the variance is mean(x^2) - mean(x)^2, in float32"
        found.append(Planted("one-pass", words, {"w": _one_pass}))
    return found


def _eps(at: Steps) -> Float64s:
    usual, other = USUAL_EPS
    # It may come rounded to the type of x.
    return np.full(1, other if math.isclose(at.case.eps, usual, rel_tol=NEAR) else usual)


def _one_pass(at: Steps) -> Float64s:
    rows = at["rows"].astype(np.float32)
    centre = rows.mean(axis=1, keepdims=True)
    square = (rows * rows).mean(axis=1, keepdims=True) - centre * centre
    return np.asarray(np.maximum(square, 0).astype(np.float64))


def _of_parameters(norm: Definition) -> list[Planted]:
    """Return kernels with another gain, or without beta."""
    table = of_results(norm)
    offset = "the gain is 1 + gamma, and not gamma"
    if norm.gain == "zero-centred":
        offset = "the gain is gamma, and not 1 + gamma"
    chosen = {"no gamma": "gamma is left out", "gain offset": offset}
    if "beta" in norm.parameters:
        chosen["no beta"] = "beta is left out"
    return [_taken(name, table, words) for name, words in chosen.items()]


def _of_sum(norm: Definition) -> list[Planted]:
    """Return kernels that add the residual otherwise."""
    if not norm.adds:
        return []
    table = of_results(norm)
    chosen = {
        "no residual": "x alone is taken, without the residual",
        "y for the sum": "y is returned as the sum",
    }
    found = [_taken(name, table, words) for name, words in chosen.items()]
    return [Planted("zeros for the sum", "the sum is 0", _zeros("sum")), *found]


def _of_gradients(norm: Definition) -> list[Planted]:
    """Return kernels that are right in forward."""
    table = {**of_gradients(norm), **of_parameters(norm)}
    chosen = {
        "dx without projection": "xhat*mean(g*xhat) is left out",
        "gamma after projection": "gamma is applied after the projection",
        "gamma twice in dx": "gamma is multiplied with once more, after the projection",
        "dgamma of half the rows": "the second half of the rows is left out",
        "dgamma from x": f"it is summed from {'the sum' if norm.adds else 'x'}, not from xhat",
    }
    if norm.centred:
        chosen["dx without mean(g)"] = "mean(g) is left out"
        chosen["mean(g) twice in dx"] = "mean(g) is subtracted twice"
    if norm.adds:
        chosen["no dsum"] = "dsum is left out"
    zeros = ["dx", *(f"d{name}" for name in norm.parameters)]
    words = "it is added up in the type of x, one row after the other"
    return [
        *(Planted(f"zeros for {name}", f"{name} is 0", _zeros(name), True) for name in zeros),
        *(replace(_taken(name, table, each), backward=True) for name, each in chosen.items()),
        replace(_taken("narrow dgamma", table, words), backward=True, narrow=True),
    ]


SAMPLE = (4, 67)
"""Rows on which a fault shows where it can: two halves, and a last block that is not whole."""
SAMPLE_EPS = 1e-5


class Call(NamedTuple):
    """What a forward pass was given, for its backward pass."""

    inputs: Mapping[str, Array | None]
    eps: float


def given_case(norm: Norm, inputs: Mapping[str, Array | None], eps: float, size: int = 0) -> Case:
    """Return what a kernel was given as rows, of `size` elements if not as the last axis has."""
    x = inputs["x"]
    assert x is not None
    size = size or x.shape[-1]
    rows: dict[str, Array | None] = {}
    for each in norm.inputs:
        array = inputs.get(each.name)
        if array is None and each.role != "parameter":
            array = np.broadcast_to(np.zeros(1, x.dtype), x.shape)
        shape = (-1,) if each.role == "parameter" else (x.size // size, size)
        rows[each.name] = None if array is None else array.reshape(shape)
    return Case(norm, "what a test has", x.dtype.name, rows, eps)


def stored(values: Float64s, dtype: np.dtype[Any]) -> Array:
    """Round once to a type, which may be none that the judge knows."""
    with np.errstate(all="ignore"):
        if dtype.name in FORMATS and dtype != values.dtype:
            values = rounded(values, dtype.name)
        result: Array = values.astype(dtype)
        return result


class Kernel:
    """A norm with a fault, or without: results of a case by their names.

    Its `forward` and `backward` are those of a `truenorm.verify.Subject`.
    """

    def __init__(self, norm: Norm, planted: Planted | None = None, recipe: str = "") -> None:
        self.norm, self.planted, self.recipe = norm, planted, recipe
        self._changes = {**rounding_of(recipe), **(planted.changes if planted else {})}

    def steps(self, case: Case) -> Steps:
        """Return all steps of a case: those that are asked for are computed."""
        return Steps(self.norm, case, self._changes)

    def result(self, steps: Steps, name: str) -> Float64s:
        """Return a result; a row whose gradients are not finite has no dx."""
        values = steps[name]
        if name in ("dx", "dresidual"):
            finite = np.isfinite(steps["g"]).all(axis=1, keepdims=True)
            values = np.where(finite, values, np.nan)
        return np.asarray(np.broadcast_to(values, self._shape(steps.case, name)))

    def reach(self, dtype: str, arguments: Collection[str]) -> list[str]:
        """Return the results in which it is not the right kernel, if a call is given these."""
        random = np.random.default_rng(0)
        inputs: dict[str, Array | None] = {
            name: stored(random.normal(size=size), dtype_of(dtype))
            for name, size in self._sizes().items()
            if name in arguments
        }
        case = given_case(self.norm, inputs, SAMPLE_EPS)
        right = Kernel(self.norm, recipe=self.recipe)
        with np.errstate(all="ignore"):
            of_right, of_wrong = right.steps(case), self.steps(case)
            return [
                each.name
                for each in self.norm.outputs
                if each.like in inputs
                and not np.array_equal(
                    right.result(of_right, each.name),
                    self.result(of_wrong, each.name),
                    equal_nan=True,
                )
            ]

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each input of the sample."""
        return {
            each.name: SAMPLE[1:] if each.role == "parameter" else SAMPLE
            for each in self.norm.inputs
        }

    def _shape(self, case: Case, name: str) -> tuple[int, ...]:
        return case.shape if self.norm.is_rows(name) else case.shape[1:]

    def forward(self, *given: Any) -> Any:
        """Return the results, and what backward needs."""
        *arrays, eps = given
        names = self.norm.inputs_of("data", "parameter")
        call = Call(dict(zip(names, arrays, strict=True)), eps)
        outputs = self.norm.outputs_of(backward=False)
        return *self._results(call, outputs), call

    def backward(self, *given: Any) -> tuple[Array | None, ...]:
        """Return the gradients."""
        *arrays, call = given
        names = self.norm.inputs_of("gradient")
        inputs = {**call.inputs, **dict(zip(names, arrays, strict=True))}
        return tuple(self._results(Call(inputs, call.eps), self.norm.outputs_of(backward=True)))

    def _results(self, call: Call, outputs: list[str]) -> list[Array | None]:
        like = {each.name: each.like for each in self.norm.outputs}
        steps = self.steps(given_case(self.norm, call.inputs, call.eps))
        found: list[Array | None] = []
        for name in outputs:
            model = call.inputs[like[name]]
            if model is None:
                found.append(None)
                continue
            kind = dtype_of(self.norm.type_of(name, model.dtype.name))
            found.append(stored(self.result(steps, name), kind).reshape(model.shape))
        return found
