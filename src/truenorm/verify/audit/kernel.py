"""A planted kernel, or the right one, on arrays as tests have them: of any rank and any type."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.audit.planted import Planted, rounding_of
from truenorm.verify.operation import Case
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.norms.hypotheses.steps import Steps, rounded
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of

__all__ = ["Kernel", "given_case", "stored"]

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
