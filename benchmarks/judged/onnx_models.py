"""What the subjects of ONNX run: a model of one node."""

from functools import cache
from importlib import import_module
from typing import Any

__all__ = ["OPERATORS", "model", "type_of"]

onnx: Any = import_module("onnx")
# Each with its parameters and the operators' version that brought it; old numbers are what every
# runtime reads. The last one is ONNX Runtime's own.
OPERATORS = {
    "LayerNormalization": (("gamma", "beta"), 17),
    "RMSNormalization": (("gamma",), 23),
    "SimplifiedLayerNormalization": (("gamma",), 17),
}
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
def model(operator: str, dtype: str, eps: float) -> Any:
    """Return a model with x and the parameters as inputs; eps is an attribute, a float32."""
    helper, kind = onnx.helper, type_of(dtype)
    parameters, opset = OPERATORS[operator]
    shapes = {"x": ["rows", "size"], **{name: ["size"] for name in parameters}}
    graph = helper.make_graph(
        [helper.make_node(operator, list(shapes), ["y"], axis=-1, epsilon=eps)],
        operator,
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", kind, shapes["x"])],
    )
    version = 10 if opset > 21 else 8
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=version)
