"""Layer normalization in NumPy whose numbers can be trusted."""

from truenorm import textbook
from truenorm.dispatch import backends
from truenorm.gradient_check import gradcheck
from truenorm.ops.layer_norm import layer_norm, layer_norm_backward, layer_norm_forward
from truenorm.ops.saved import Gradients, Saved

__all__ = [
    "Gradients",
    "Saved",
    "__version__",
    "backends",
    "gradcheck",
    "layer_norm",
    "layer_norm_backward",
    "layer_norm_forward",
    "textbook",
]

__version__ = "0.1.0.dev0"
