"""MAX on a CPU: max.graph.ops.layer_norm and rms_norm, for any shape.

To compile a graph takes minutes, and eps is a constant of the graph: it is 1e-5 throughout.
"""

from functools import cache
from importlib import import_module
from typing import Any

import truenorm.verify as tv
from benchmarks.world.subjects.onnx_node import Array

graph: Any = import_module("max.graph")
engine: Any = import_module("max.engine")
driver: Any = import_module("max.driver")
TYPES: Any = import_module("max.dtype").DType
session = engine.InferenceSession(devices=[driver.CPU()])


@cache
def compiled(centred: bool, eps: float) -> Any:
    """Compile a graph of one norm."""
    device = graph.DeviceRef.CPU()
    shapes = [("rows", "size"), ("size",), ("size",)][: 3 if centred else 2]
    inputs = [graph.TensorType(TYPES.float32, shape, device=device) for shape in shapes]
    with graph.Graph("norm", input_types=inputs) as made:
        operator = graph.ops.layer_norm if centred else graph.ops.rms_norm
        made.output(operator(*(each.tensor for each in made.inputs), epsilon=eps))
    return session.load(made)


def _layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    y: Array = compiled(True, eps).execute(x, gamma, beta)[0].to_numpy()
    return y


def _rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    y: Array = compiled(False, eps).execute(x, gamma)[0].to_numpy()
    return y


layer_norm, rms_norm = (
    tv.Subject(
        function, name=f"max {name}", operation=f"{name},eps=1e-5", dtypes=["float32"], seconds=300
    )
    for function, name in ((_layer_norm, "layer_norm"), (_rms_norm, "rms_norm"))
)
