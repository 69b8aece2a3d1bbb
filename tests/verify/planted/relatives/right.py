"""Right norms as kernels ship them, by each recipe: nothing is found, and the recipe is named."""

from truenorm.verify.operations import LAYER_NORM, RMS_NORM, norm
from truenorm.verify.operations.norms import Norm
from truenorm.verify.subject import Subject
from truenorm.verify.types import FORMATS, Float64s
from verify.planted.base import to_bits
from verify.planted.relatives.kernel import By, relative
from verify.planted.relatives.shipped import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    LLAMA,
    OF_THE_UNROUNDED,
    WIDE_ZERO_CENTRED,
    ZERO_CENTRED,
)

__all__ = ["RECIPES", "RECIPES_OF_MORE"]


class EveryStep(By):
    """The recipe `none` with the digits of a type, and a range in which no square overflows."""

    def stepped(self, step: str, values: Float64s) -> Float64s:
        if step not in ("square", "w", "r"):
            return super().stepped(step, values)
        return to_bits(values, FORMATS[self.kinds["x"].name].precision)


def by(recipe: str, operation: Norm, dtype: str, who: str = "") -> Subject:
    """Return a right kernel that claims its recipe; `who` rounds like this."""
    kernel = EveryStep(recipe) if recipe == "none" else By(recipe)
    name = f"{recipe}, as {who}" if who else recipe
    return relative(kernel, name, operation, dtype, recipe=recipe)


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
