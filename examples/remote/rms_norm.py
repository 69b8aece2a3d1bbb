"""An RMSNorm on PyTorch tensors, for any device: float32 inside, rounded once."""

import torch  # type: ignore[import-not-found]


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalize over the last axis."""
    wide = x.float()
    rstd = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * rstd * weight.float()).to(x.dtype)
