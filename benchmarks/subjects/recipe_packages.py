"""Packages of `benchmarks.recipes` that need an adapter: MLX on its CPU device, and quack."""

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

mlx: Any = import_module("mlx.core")
mlx.set_default_device(mlx.cpu)
BFLOAT16 = np.dtype(import_module("ml_dtypes").bfloat16)
DTYPES = ["bfloat16", "float16"]
Array = NDArray[Any]


def to_mlx(array: Array) -> Any:
    """Return an array of MLX, which takes NumPy's bfloat16 as bits."""
    if array.dtype == BFLOAT16:
        return mlx.array(array.view(np.uint16)).view(mlx.bfloat16)
    return mlx.array(array)


def to_numpy(result: Any) -> Array:
    """Evaluate a result, and return it as an array of NumPy."""
    if result.dtype == mlx.bfloat16:
        return np.array(result.view(mlx.uint16)).view(BFLOAT16)
    return np.array(result)


def rms_norm_forward(x: Array, gamma: Array, eps: float) -> Array:
    """Call ``mlx.core.fast.rms_norm``."""
    return to_numpy(mlx.fast.rms_norm(to_mlx(x), to_mlx(gamma), eps))


def layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Call ``mlx.core.fast.layer_norm``."""
    return to_numpy(mlx.fast.layer_norm(to_mlx(x), to_mlx(gamma), to_mlx(beta), eps))


rms_norm = tv.Subject(
    rms_norm_forward, name="mlx.core.fast.rms_norm", dtypes=DTYPES, operation=tv.RMS_NORM
)
layer_norm = tv.Subject(layer_norm_forward, name="mlx.core.fast.layer_norm", dtypes=DTYPES)
quack = tv.torch_subject(
    # By the name of its module: the package has a function of the same name.
    import_module("quack.rmsnorm").rmsnorm_ref,
    operation="rms_norm",
    dtypes=DTYPES,
    name="quack.rmsnorm.rmsnorm_ref",
)
