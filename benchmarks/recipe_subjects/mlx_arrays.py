"""MLX, on its CPU device: ``mlx.core.fast``."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

mlx: Any = import_module("mlx.core")
mlx.set_default_device(mlx.cpu)
BFLOAT16 = np.dtype(import_module("ml_dtypes").bfloat16)
Array = NDArray[Any]


def to_mlx(array: Array) -> Any:
    """Return an array of MLX, which does not take NumPy's bfloat16 as it is."""
    if array.dtype == BFLOAT16:
        return mlx.array(array.view(np.uint16)).view(mlx.bfloat16)
    return mlx.array(array)


def to_numpy(result: Any) -> Array:
    """Return the numbers, computed."""
    if result.dtype == mlx.bfloat16:
        return np.array(result.view(mlx.uint16)).view(BFLOAT16)
    return np.array(result)


def forward(x: Array, gamma: Array, eps: float) -> Array:
    """Call ``rms_norm``."""
    return to_numpy(mlx.fast.rms_norm(to_mlx(x), to_mlx(gamma), eps))


def layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Call ``layer_norm``."""
    return to_numpy(mlx.fast.layer_norm(to_mlx(x), to_mlx(gamma), to_mlx(beta), eps))


rms_norm = tv.Subject(
    forward, name="mlx.core.fast.rms_norm", dtypes=["bfloat16", "float16"], operation=tv.RMS_NORM
)
layer_norm = tv.Subject(
    layer_norm_forward, name="mlx.core.fast.layer_norm", dtypes=["bfloat16", "float16"]
)
