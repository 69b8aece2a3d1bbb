"""A model of one ONNX node, for the engines that run ONNX."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
TYPES = {"float32": 1, "float16": 10, "bfloat16": 16, "float64": 11}
"""By type: its number in ONNX."""
OPSETS = {"LayerNormalization": 17, "RMSNormalization": 23}


def model(
    operator: str,
    eps: float,
    dtype: str = "float32",
    shape: Sequence[int | str] = ("rows", "size"),
    constants: Sequence[Array] = (),
    **attributes: Any,
) -> bytes:
    """Return a model of one norm over the last axis; parameters may be constants of the model."""
    helper: Any = import_module("onnx.helper")
    arrays: Any = import_module("onnx.numpy_helper")
    names = ["gamma", "beta"] if operator == "LayerNormalization" else ["gamma"]
    kind = TYPES[dtype]
    inputs = [helper.make_tensor_value_info("x", kind, list(shape))]
    if not constants:
        inputs += [helper.make_tensor_value_info(name, kind, [shape[-1]]) for name in names]
    known = [
        arrays.from_array(np.ascontiguousarray(array), name)
        for name, array in zip(names, constants, strict=bool(constants))
    ]
    node = helper.make_node(
        operator, ["x", *names], ["y"], axis=-1, epsilon=float(eps), **attributes
    )
    output = helper.make_tensor_value_info("y", kind, list(shape))
    graph = helper.make_graph([node], "norm", inputs, [output], known)
    opset = OPSETS.get(operator, 17)
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=10 if opset > 20 else 8,
    )
    content: bytes = made.SerializeToString()
    return content
