"""MAX on a CPU: max.graph.ops.layer_norm and rms_norm, for any shape."""

from functools import cache
from importlib import import_module
from typing import Any

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


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run layer_norm."""
    y: Array = compiled(True, eps).execute(x, gamma, beta)[0].to_numpy()
    return y


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run rms_norm."""
    y: Array = compiled(False, eps).execute(x, gamma)[0].to_numpy()
    return y
