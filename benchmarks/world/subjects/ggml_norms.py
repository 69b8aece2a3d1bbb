"""ggml by its C interface, from the libraries in the wheel of pywhispercpp."""

import ctypes
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import truenorm.verify as tv
from benchmarks.world.subjects.onnx_node import Array

FOLDER = Path(np.__file__).parents[1]
import_module("_pywhispercpp")  # loads what the libraries need


class Parameters(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = (
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", ctypes.c_void_p),
        ("no_alloc", ctypes.c_bool),
    )


def _library(name: str) -> ctypes.CDLL:
    found = sorted(FOLDER.glob(f"**/lib{name}*.so*"))
    return ctypes.CDLL(str(found[0]), mode=ctypes.RTLD_GLOBAL)


base, cpu = _library("ggml-base"), _library("ggml-cpu")
POINTER, INT, LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ggml_init": (POINTER, Parameters),
    "ggml_free": (None, POINTER),
    "ggml_new_tensor_1d": (POINTER, POINTER, INT, LONG),
    "ggml_new_tensor_2d": (POINTER, POINTER, INT, LONG, LONG),
    "ggml_norm": (POINTER, POINTER, POINTER, ctypes.c_float),
    "ggml_rms_norm": (POINTER, POINTER, POINTER, ctypes.c_float),
    "ggml_rms_norm_back": (POINTER, POINTER, POINTER, POINTER, ctypes.c_float),
    "ggml_soft_max": (POINTER, POINTER, POINTER),
    "ggml_soft_max_ext_back": (POINTER, POINTER, POINTER, POINTER, ctypes.c_float, ctypes.c_float),
    "ggml_mul": (POINTER, POINTER, POINTER, POINTER),
    "ggml_add": (POINTER, POINTER, POINTER, POINTER),
    "ggml_new_graph": (POINTER, POINTER),
    "ggml_build_forward_expand": (None, POINTER, POINTER),
    "ggml_get_data": (POINTER, POINTER),
}
for _name, (_result, *_arguments) in SIGNATURES.items():
    getattr(base, _name).restype = _result
    getattr(base, _name).argtypes = _arguments
cpu.ggml_graph_compute_with_ctx.argtypes = [POINTER, POINTER, INT]
if hasattr(cpu, "ggml_cpu_init"):
    cpu.ggml_cpu_init()


def run(build: Callable[..., Any], *arrays: Array) -> Array:
    """Compute a graph of arrays by one thread; the result has the shape of the first."""
    size = 6 * sum(each.nbytes for each in arrays) + 4 * arrays[0].nbytes + (1 << 22)
    context = base.ggml_init(Parameters(size, None, False))
    tensors = []
    for array in arrays:
        rows = np.ascontiguousarray(array, np.float32)
        shape = rows.shape[::-1]
        tensor = (base.ggml_new_tensor_2d if rows.ndim == 2 else base.ggml_new_tensor_1d)(
            context, 0, *shape
        )
        ctypes.memmove(base.ggml_get_data(tensor), rows.ctypes.data, rows.nbytes)
        tensors.append(tensor)
    result = build(context, *tensors)
    graph = base.ggml_new_graph(context)
    base.ggml_build_forward_expand(graph, result)
    status = cpu.ggml_graph_compute_with_ctx(context, graph, 1)
    y = np.empty(arrays[0].shape, np.float32)
    ctypes.memmove(y.ctypes.data, base.ggml_get_data(result), y.nbytes)
    base.ggml_free(context)
    if status:
        raise RuntimeError(f"ggml_graph_compute returned {status}")
    return y


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run ggml_norm, ggml_mul and ggml_add."""

    def build(context: Any, rows: Any, scale: Any, shift: Any) -> Any:
        scaled = base.ggml_mul(context, base.ggml_norm(context, rows, eps), scale)
        return base.ggml_add(context, scaled, shift)

    return run(build, x, gamma, beta)


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run ggml_rms_norm and ggml_mul."""

    def build(context: Any, rows: Any, scale: Any) -> Any:
        return base.ggml_mul(context, base.ggml_rms_norm(context, rows, eps), scale)

    return run(build, x, gamma)


def _forward(x: Array, eps: float) -> tuple[Array, Any]:
    return run(lambda context, rows: base.ggml_rms_norm(context, rows, eps), x), (x, eps)


def _backward(dy: Array, saved: Any) -> Array:
    x, eps = saved
    return run(lambda context, *both: base.ggml_rms_norm_back(context, *both, eps), dy, x)


rms_norm_back = tv.Subject(
    _forward, _backward, name="ggml_rms_norm_back", operation="rms_norm,gamma=false"
)
