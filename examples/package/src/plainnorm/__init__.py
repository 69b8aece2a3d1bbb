"""Layer normalization in float32, as many projects have it."""

from plainnorm.kernels import layer_norm, layer_norm_backward

__all__ = ["layer_norm", "layer_norm_backward"]
