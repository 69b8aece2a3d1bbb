"""The norms, as kernels ship them, that planted bugs are bugs of; few, as each has its answers."""

from truenorm.verify.operations import norm

__all__ = [
    *("ADD_LAYER_NORM", "ADD_RMS_NORM", "LLAMA", "OF_THE_UNROUNDED", "WIDE_ZERO_CENTRED"),
    "ZERO_CENTRED",
]

ADD_RMS_NORM = norm("add_rms_norm")
ADD_LAYER_NORM = norm("add_layer_norm")
OF_THE_UNROUNDED = norm("add_rms_norm", sum="unrounded")
ZERO_CENTRED = norm("rms_norm", gain="zero-centred")
WIDE_ZERO_CENTRED = norm("rms_norm", gain="zero-centred", parameters="float32")
LLAMA = norm("rms_norm", parameters="float32", result="float32")
"""Hugging Face's, for bfloat16 rows and float32 weights."""
