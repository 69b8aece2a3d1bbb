"""PyTorch's layer norm, wrapped: ``truenorm verify torch_check.py``, where PyTorch is installed.

A kernel in Triton or CUDA is wrapped in the same way: put its launch in place of `layer_norm`.
"""

from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from numpy.typing import NDArray

import truenorm.verify as tv

Array = NDArray[Any]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def to_torch(array: Array) -> Any:
    """Return a tensor with the same numbers; PyTorch does not take NumPy's bfloat16 as it is."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(DEVICE)
    return torch.from_numpy(array).to(DEVICE)


def to_numpy(tensor: Any) -> Array:
    """Return an array with the same numbers, once the device has computed them."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        bits: Array = tensor.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = tensor.numpy()
    return array


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Normalize rows, and keep the graph for backward."""
    inputs = [to_torch(each).requires_grad_() for each in (x, gamma, beta)]
    y = torch.nn.functional.layer_norm(inputs[0], (x.shape[-1],), *inputs[1:], eps)
    return to_numpy(y), (y, inputs)


def backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Return dx, dgamma and dbeta, from the graph of this forward pass."""
    y, inputs = saved
    return tuple(map(to_numpy, torch.autograd.grad(y, inputs, to_torch(dy))))


subject = tv.Subject(
    forward,
    backward,
    name=f"PyTorch {torch.__version__}, {DEVICE}",
    dtypes=["float32", "float16", "bfloat16"],
)
