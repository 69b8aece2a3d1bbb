"""What both subjects of ONNX run: a model of one LayerNormalization node."""

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["layer_norm", "type_of"]

onnx: Any = import_module("onnx")
TYPES = {
    "float16": "FLOAT16",
    "bfloat16": "BFLOAT16",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}


def type_of(dtype: str) -> int:
    """Return the number that ONNX has for a type."""
    number: int = getattr(onnx.TensorProto, TYPES[dtype])
    return number


@cache
def layer_norm(dtype: str, eps: float) -> Any:
    """Return a model with x, gamma and beta as inputs; eps is an attribute, a float32."""
    helper, kind = onnx.helper, type_of(dtype)
    shapes = {"x": ["rows", "size"], "gamma": ["size"], "beta": ["size"]}
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", list(shapes), ["y"], axis=-1, epsilon=eps)],
        "layer_norm",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", kind, shapes["x"])],
    )
    # Opset 17 brought LayerNormalization; old numbers are what every runtime reads.
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
