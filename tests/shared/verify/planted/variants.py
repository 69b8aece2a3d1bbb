"""A correct norm of any variant in steps: the sum, the gain, and where it is rounded.

It adds three steps to `shared.verify.planted.kernels.Kernel`, which a planted bug may replace.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from shared.verify.planted.kernels import Altered, Kernel, PlantedBug, Saved, to_24_bits
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operations import norm
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, Float64s, dtype_of

ROUNDED: dict[str, dict[str, str]] = {
    "late": {},
    "early": {"xhat": "x"},
    "weight-typed": {"xhat": "gamma"},
    "product": {"product": "y"},
    "apex": {"xhat": "y", "product": "y"},
    "gain-rounded": {"gain": "gamma"},
    "early, gain-rounded": {"xhat": "x", "gain": "gamma"},
    "none": {"square": "x", "w": "x", "r": "x", "xhat": "x", "gain": "x", "product": "x"},
}
"""By recipe: the steps that are rounded on the way, each to the type of x, of gamma or of y."""


class SavedCall(NamedTuple):
    """What backward is given: what forward of the base saved, and all that was given to it."""

    saved: Any
    inputs: Mapping[str, Any]


class Variant(Kernel):
    """Any norm, of one type of x; `recipe` says where y is rounded on the way."""

    operation: Norm
    kinds: Mapping[str, Any]
    recipe = "late"

    # The steps that the base does not have.

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        """Return what is normalized, and the sum that is returned."""
        total = x + residual
        if self.operation.sum == "rounded":
            return total, total
        return x.astype(np.float64) + residual.astype(np.float64), total

    def gain(self, gamma: Array | None) -> Array | None:
        """Return what the base is to multiply by."""
        if gamma is None or self.operation.gain == "plain":
            return gamma
        one_more: Array = 1.0 + gamma.astype(np.float64)
        return one_more

    def add_dsum(self, dx: Array, dsum: Array) -> tuple[Array, Array]:
        """Return the gradients of both summands."""
        with np.errstate(all="ignore"):
            total = (dx.astype(np.float64) + dsum.astype(np.float64)).astype(dsum.dtype)
        return total, total

    # Where it rounds.

    def round_step(self, step: str, values: Float64s) -> Float64s:
        """Round the result of a step, if the recipe says so."""
        to = ROUNDED[self.recipe].get(step)
        return rounded(values, self.kinds[to]) if to else values

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        if self.recipe != "none":
            return super().variance(rows, centred)
        return self.round_step("w", self.mean_of(self.round_step("square", centred * centred)))

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        if self.recipe != "none":
            return super().rstd(variance, eps)
        w = self.round_step("w", variance + self.round_step("w", np.asarray(eps)))
        return self.round_step("r", super().rstd(w, 0.0))

    def output(self, saved: Saved) -> Float64s:
        xhat = self.round_step("xhat", self.xhat(saved))
        product = xhat * self.round_step("gain", self.gamma(saved))
        return self.round_step("product", product) + self.beta(saved)

    # Both passes of the operation.

    def run_forward(self, *arguments: Any) -> Any:
        *arrays, eps = arguments
        names = self.operation.inputs_of("data", "parameter")
        inputs = dict(zip(names, arrays, strict=True))
        x = inputs["x"]
        with np.errstate(all="ignore"):
            rows, total = self.add(x, inputs["residual"]) if self.operation.adds else (x, None)
            saved = self.statistics(rows, self.gain(inputs["gamma"]), inputs.get("beta"), eps)
            y = self.cast(self.output(saved), np.empty(0, self.kinds["y"])).reshape(x.shape)
        call = SavedCall(self.to_save(saved), inputs)
        return (y, total, call) if self.operation.adds else (y, call)

    def run_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        *gradients, call = others
        dx, dgamma, dbeta = self.backward(dy, call.saved)
        with np.errstate(all="ignore"):
            if dgamma is not None:
                dgamma = dgamma.astype(call.inputs["gamma"].dtype)
            rows = self.add_dsum(dx, gradients[0]) if gradients else (dx,)
        return (*rows, dgamma, dbeta)[: len(rows) + len(self.operation.parameters)]


class AlteredVariant(Altered, Variant):
    """A variant with wrong steps."""


class ByRecipe(Variant):
    """It rounds by a recipe."""

    def __init__(self, recipe: str) -> None:
        self.recipe = recipe


class Changed(Variant):
    """Some results are made of the right ones, and of what was given, by their names."""

    def __init__(self, **made: Callable[[Mapping[str, Any]], Any]) -> None:
        self.made = made

    def changed(self, inputs: Mapping[str, Any], results: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the results, with what stands in the place of some."""
        known = {**inputs, **results}
        with np.errstate(all="ignore"):
            return tuple(
                self.made[name](known) if name in self.made else result
                for name, result in results.items()
            )

    def run_forward(self, *arguments: Any) -> Any:
        *results, call = super().run_forward(*arguments)
        names = self.operation.outputs_of(backward=False)
        return (*self.changed(call.inputs, dict(zip(names, results, strict=True))), call)

    def run_backward(self, *arguments: Any) -> tuple[Any, ...]:
        *gradients, call = arguments
        arrived = zip(self.operation.inputs_of("gradient"), gradients, strict=True)
        inputs = {**call.inputs, **dict(arrived)}
        results = super().run_backward(*arguments)
        names = self.operation.outputs_of(backward=True)
        return self.changed(inputs, dict(zip(names, results, strict=True)))


def rounded(values: Float64s, kind: Any) -> Float64s:
    """Round to a type and back; through float32, as kernels do."""
    with np.errstate(all="ignore"):
        narrow: Float64s = to_24_bits(values).astype(kind).astype(np.float64)
    return narrow


def as_variant(bug: type[Kernel], *settings: Any) -> Variant:
    """Return a planted bug of the base as one of a variant."""
    both: type[Variant] = type(bug.__name__, (bug, Variant), {"__doc__": bug.__doc__})
    return both(*settings)


def variant(
    kernel: Variant,
    name: str,
    operation: Norm,
    dtype: str = "bfloat16",
    also: Collection[str] = (),
    recipe: str = "",
) -> Subject:
    """Make a subject of a kernel, in one type; `recipe` is what it claims."""
    kernel.operation, kernel.centred = operation, operation.centred
    kernel.kinds = {
        "x": dtype_of(dtype),
        "gamma": dtype_of(operation.parameter_type or dtype),
        "y": dtype_of(operation.result_type or dtype),
    }
    return Subject(
        kernel.run_forward,
        kernel.run_backward,
        f"{operation.spec}: {name}",
        [dtype],
        list(also),
        operation=operation,
        recipe=recipe,
    )


def plant(
    kernel: Variant,
    name: str,
    operation: Norm,
    dtype: str = "bfloat16",
    *,
    also: Collection[str] = (),
    recipe: str = "",
    verdict: str = "",
    symptom: str = "",
    **grades: str,
) -> PlantedBug:
    """Make a subject of a wrong kernel; `symptom` is what a finding must say."""
    subject = variant(kernel, name, operation, dtype, also, recipe)
    return PlantedBug(subject, grades, verdict, symptom)


ADD_RMS_NORM = norm("add_rms_norm")
ADD_LAYER_NORM = norm("add_layer_norm")
OF_THE_UNROUNDED = norm("add_rms_norm", sum="unrounded")
ZERO_CENTRED = norm("rms_norm", gain="zero-centred")
WIDE_ZERO_CENTRED = norm("rms_norm", gain="zero-centred", parameters="float32")
LLAMA = norm("rms_norm", parameters="float32", result="float32")
"""Hugging Face's, for bfloat16 rows and float32 weights."""
