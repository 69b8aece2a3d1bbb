"""Correct subjects: the judge must report nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import truenorm as tn
from shared.verify.planted.kernels import SUBJECTS, Kernel, WideKernel, to_bits
from shared.verify.planted.variants import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    LLAMA,
    OF_THE_UNROUNDED,
    WIDE_ZERO_CENTRED,
    ZERO_CENTRED,
    ByRecipe,
    variant,
)
from truenorm import textbook
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm
from truenorm.verify.subject import Subject
from truenorm.verify.types import FORMATS, Array, Float64s


class EveryStep(ByRecipe):
    """The recipe `none` with the digits of a type, and a range in which no square overflows."""

    def round_step(self, step: str, values: Float64s) -> Float64s:
        if step not in ("square", "w", "r"):
            return super().round_step(step, values)
        return to_bits(values, FORMATS[self.kinds["x"].name].precision)


def by(recipe: str, operation: Norm, dtype: str, project: str = "") -> Subject:
    """Return a right kernel that claims its recipe; `project` rounds like this."""
    kernel = EveryStep(recipe) if recipe == "none" else ByRecipe(recipe)
    name = f"{recipe}, as {project}" if project else recipe
    return variant(kernel, name, operation, dtype, recipe=recipe)


RECIPES = [
    by("late", RMS_NORM, "float16", "torch.nn.functional.rms_norm"),
    by("early", RMS_NORM, "bfloat16", "MLX"),
    by("none", RMS_NORM, "bfloat16", "Liger's none"),
    by("early", LLAMA, "bfloat16", "Hugging Face's Llama"),
    by("weight-typed", WIDE_ZERO_CENTRED, "bfloat16"),
    by("gain-rounded", ZERO_CENTRED, "bfloat16", "a switch of Transformer Engine"),
    by("late", LAYER_NORM, "bfloat16", "torch.nn.functional.layer_norm"),
    by("late", ADD_RMS_NORM, "bfloat16", "vLLM's CUDA kernel"),
    by("late", OF_THE_UNROUNDED, "bfloat16", "FlashInfer"),
    by("apex", ADD_LAYER_NORM, "float16"),
]
"""For the gate."""

_OF_16_BITS = norm("rms_norm", parameters="float16", result="float16")
_LAYER = norm("layer_norm", gain="zero-centred", parameters="float32")
_ADD_RMS = norm("add_rms_norm", gain="zero-centred", parameters="float32")
_ADD_LAYER = norm("add_layer_norm", gain="zero-centred", parameters="float32", sum="unrounded")

RECIPES_OF_MORE = [
    by("late", WIDE_ZERO_CENTRED, "bfloat16", "Gemma"),
    by("apex", LAYER_NORM, "float16", "apex"),
    by("early", ADD_RMS_NORM, "bfloat16", "Liger's llama"),
    by("late", ADD_LAYER_NORM, "float16"),
    by("weight-typed", _OF_16_BITS, "bfloat16", "T5 with float16 weights"),
    by("apex", RMS_NORM, "float16", "apex"),
    by("early, gain-rounded", ZERO_CENTRED, "bfloat16"),
    by("early", LAYER_NORM, "bfloat16"),
    by("product", LAYER_NORM, "float16"),
    by("late", _LAYER, "bfloat16"),
    by("none", ADD_RMS_NORM, "bfloat16"),
    by("apex", ADD_RMS_NORM, "bfloat16"),
    by("weight-typed", OF_THE_UNROUNDED, "bfloat16", "vLLM's native path"),
    by("late", _ADD_RMS, "bfloat16"),
    by("early", ADD_LAYER_NORM, "float16"),
    by("product", ADD_LAYER_NORM, "float16"),
    by("weight-typed", _ADD_LAYER, "bfloat16"),
]
"""For the slow session: norms of which the gate has no answers, and recipes that it has seen."""


HALVES, WIDE = ["float16", "bfloat16"], ["float32", "float64"]
NARROW = [*HALVES, "float32"]

Function = Callable[..., Any]


def _truenorm(operation: Norm, rounding: str, backend: str | None) -> tuple[Function, Function]:
    forwards, backwards = (
        getattr(tn, f"{operation.name}_{each}") for each in ("forward", "backward")
    )

    def forward(x: Array, *others: Any) -> Any:
        *parameters, eps = others
        return forwards(x, *parameters, eps=eps, rounding=rounding, backend=backend)

    def backward(dy: Array, saved: Any) -> Any:
        return backwards(dy, saved, backend=backend)[: 1 + len(operation.parameters)]

    return forward, backward


def _textbook(operation: Norm) -> tuple[Function, Function]:
    """Return the textbook formulas in float64, whose results are cast."""
    prefix = "" if operation.centred else "rms_norm_"
    forwards, backwards = (
        getattr(textbook, f"{prefix}{each}") for each in ("forward", "backward")
    )

    def forward(x: Array, *others: Any) -> tuple[Array, Any]:
        *parameters, eps = others
        with np.errstate(all="ignore"):
            y, saved = forwards(*(each.astype(np.float64) for each in (x, *parameters)), eps)
            return y.astype(x.dtype), (saved, [each.dtype for each in parameters])

    def backward(dy: Array, state: Any) -> tuple[Array, ...]:
        saved, kinds = state
        with np.errstate(all="ignore"):
            gradients = backwards(dy.astype(np.float64), saved)
            pairs = zip(gradients, (dy.dtype, *kinds), strict=True)
            return tuple(each.astype(kind) for each, kind in pairs)

    return forward, backward


def _of_both_norms() -> Iterator[Subject]:
    for operation, prefix, numpy_types in (
        (LAYER_NORM, "", ["float16"]),
        (RMS_NORM, "RMSNorm: ", HALVES),
    ):
        of_kernel, everything = SUBJECTS[operation.name], list(operation.extensions)
        yield of_kernel(Kernel(), "the base", NARROW, everything)
        yield of_kernel(WideKernel(), "the base for float64", ["float64"], everything)
        for rounding in ("correct", "fast"):
            # Sums that are not exact are cut where the rows are.
            also = [each for each in everything if rounding == "correct" or each != "idle-rows"]
            for backend, suffix, dtypes in (
                (None, "", WIDE),
                (None, ", 16 bits", HALVES),
                ("reference", ", NumPy", numpy_types),
            ):
                name = f"{prefix}truenorm, {rounding}{suffix}"
                functions = _truenorm(operation, rounding, backend)
                yield Subject(*functions, name, dtypes, also, operation=operation)
        name = f"{prefix}textbook in float64, then cast"
        with_parameters = [each for each in everything if each not in ("no-gamma", "no-beta")]
        yield Subject(*_textbook(operation), name, NARROW, with_parameters, operation=operation)


def _dx(g: Array, xhat: Array, r: Array) -> Array:
    return np.asarray(r * (g - xhat * (g * xhat).mean(axis=-1, keepdims=True)))


def _over_rows(terms: Array) -> Array:
    """Add up all rows in pairs, as a kernel on a GPU does."""
    columns = np.ascontiguousarray(terms.reshape(-1, terms.shape[-1]).T)
    return np.asarray(columns.sum(axis=-1))


def _early_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Compute xhat in float32, round it, and multiply what is left."""
    wide: Array = x.astype(np.float32)
    squares = (wide * wide).mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(squares + np.float32(eps))
    xhat = wide * r
    return gamma * xhat.astype(x.dtype), (xhat, r, gamma)


def _early_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    xhat, r, gamma = saved
    dy32: Array = dy.astype(np.float32)
    dx = _dx(gamma.astype(np.float32) * dy32, xhat, r)
    return dx.astype(dy.dtype), _over_rows(dy32 * xhat).astype(gamma.dtype)


def _scaled_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Normalize in float32, each row divided by a power of two near its largest element first."""
    largest = np.where(np.isfinite(x), np.abs(x), 0).max(axis=-1, keepdims=True)
    unit = np.maximum(np.frexp(largest)[1], int(np.frexp(eps)[1]) // 2)
    scaled = np.ldexp(x, -unit)
    squares = (scaled * scaled).mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt(squares + np.ldexp(np.float32(eps), -2 * unit))
    xhat = scaled * r
    return (gamma * xhat).astype(x.dtype), (xhat, r, unit, gamma)


def _scaled_backward(dy: Array, saved: Any) -> tuple[Array, Array]:
    xhat, r, unit, gamma = saved
    dx = np.ldexp(_dx(gamma * dy, xhat, r), -unit)
    return dx, _over_rows((dy * xhat).astype(np.float64)).astype(gamma.dtype)


RIGHT: dict[str, Subject] = {
    subject.name: subject
    for subject in (
        *_of_both_norms(),
        *(
            Subject(*functions, f"RMSNorm: {name}", [dtype], operation=RMS_NORM)
            for functions, name, dtype in (
                # Beyond float16, squares overflow in float32: that is a finding, and a right one.
                ((_early_forward, _early_backward), "Hugging Face's, in float32", "float16"),
                ((_scaled_forward, _scaled_backward), "two passes in float32", "float32"),
            )
        ),
        *RECIPES,
    )
}
