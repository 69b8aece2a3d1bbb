"""Norms of training and of serving whose bits differ, after two issues of vLLM.

    truenorm verify serving_check.py:serve                      the batch changes the bits
    truenorm compare serving_check.py:train serving_check.py:pinned
    truenorm compare serving_check.py:add_train serving_check.py:add_serve

It needs PyTorch and the extra verify of truenorm; docs/judge/bits.md explains the results.
"""

from typing import Any

import torch  # type: ignore[import-not-found]

import truenorm.verify as tv


def rstd_of(x: Any, eps: float, threads: int) -> Any:
    """Return 1/sqrt(mean(x*x) + eps) in float32, summed as a block of threads does.

    A thread adds every element that is a multiple of `threads` apart; then threads add in pairs.
    """
    size = x.shape[-1]
    squares = torch.nn.functional.pad(x.float().square(), (0, -size % threads))
    columns = squares.unflatten(-1, (-1, threads))
    sums = torch.zeros_like(columns[..., 0, :])
    for place in range(columns.shape[-2]):
        sums = sums + columns[..., place, :]
    while sums.shape[-1] > 1:
        half = sums.shape[-1] // 2
        sums = sums[..., :half] + sums[..., half:]
    return torch.rsqrt(sums / size + eps)


def late(x: Any, weight: Any, eps: float, threads: int) -> Any:
    """Compute an RMSNorm that rounds once, at the end."""
    return (x.float() * rstd_of(x, eps, threads) * weight.float()).to(x.dtype)


def serving(x: Any, weight: Any, eps: float) -> Any:
    """Take fewer threads for many rows (vLLM#48271)."""
    return late(x, weight, eps, 1024 if len(x) < 256 else 256)


def pinned_serving(x: Any, weight: Any, eps: float) -> Any:
    """Take the same threads for any number of rows."""
    return late(x, weight, eps, 1024)


def training(x: Any, weight: Any, eps: float) -> Any:
    """Round xhat first, as the Llama norm of Hugging Face."""
    return weight * (x.float() * rstd_of(x, eps, 1024)).to(x.dtype)


def add_training(x: Any, residual: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """Normalize the float32 sum, as the native path of vLLM#52104."""
    total = x.float() + residual.float()
    return late(total, weight, eps, 1024).to(x.dtype), total.to(x.dtype)


def add_serving(x: Any, residual: Any, weight: Any, eps: float) -> tuple[Any, Any]:
    """Normalize the rounded sum, as the CUDA kernel of vLLM#52104."""
    total = x + residual
    return late(total, weight, eps, 1024), total


def subject_of(function: Any, operation: str = "rms_norm") -> tv.Subject:
    """Return a subject without a backward pass."""
    return tv.torch_subject(function, operation=operation, backward=False, dtypes=["bfloat16"])


train, serve, pinned = map(subject_of, (training, serving, pinned_serving))
add_train = subject_of(add_training, "add_rms_norm")
add_serve = subject_of(add_serving, "add_rms_norm")
