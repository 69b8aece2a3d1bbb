"""PyTorch on the CPU: the kernels that autograd calls, and RMSNorm by autograd."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

torch: Any = import_module("torch")
torch.set_grad_enabled(False)
BFLOAT16 = np.dtype(import_module("ml_dtypes").bfloat16)
DTYPES = ["float16", "bfloat16", "float32", "float64"]
Array = NDArray[Any]


def tensor(array: Array) -> Any:
    """Return a tensor over the same memory; PyTorch does not know NumPy's bfloat16."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array(result: Any) -> Array:
    """Return an array over the same memory."""
    if result.dtype == torch.bfloat16:
        bits: Array = result.view(torch.uint16).numpy()
        return bits.view(BFLOAT16)
    numbers: Array = result.numpy()
    return numbers


def forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
    """Call the kernel of torch.nn.functional.layer_norm."""
    rows, scale, shift = map(tensor, (x, gamma, beta))
    size = [x.shape[-1]]
    y, mean, rstd = torch.native_layer_norm(rows, size, scale, shift, eps)
    return array(y), (rows, size, mean, rstd, scale, shift)


def backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Call the kernel that autograd calls."""
    kernel = torch.ops.aten.native_layer_norm_backward.default
    return tuple(map(array, kernel(tensor(dy), *saved, [True, True, True])))


def rms_norm_forward(x: Array, gamma: Array, eps: float) -> tuple[Array, Any]:
    """Call torch.nn.functional.rms_norm, with autograd."""
    inputs = [tensor(each).requires_grad_() for each in (x, gamma)]
    with torch.enable_grad():
        y = torch.nn.functional.rms_norm(inputs[0], [x.shape[-1]], inputs[1], eps)
    return array(y.detach()), (y, inputs)


def rms_norm_backward(dy: Array, saved: Any) -> tuple[Array, ...]:
    """Differentiate by autograd; the graph is retained for further calls."""
    y, inputs = saved
    return tuple(map(array, torch.autograd.grad(y, inputs, tensor(dy), retain_graph=True)))


layer_norm = tv.Subject(forward, backward, name="PyTorch", dtypes=DTYPES)
rms_norm = tv.Subject(
    rms_norm_forward, rms_norm_backward, name="PyTorch", dtypes=DTYPES, operation=tv.RMS_NORM
)
