"""Layer normalization in float32."""

from plainnorm.kernels import layer_norm, layer_norm_backward

__all__ = ["layer_norm", "layer_norm_backward"]
