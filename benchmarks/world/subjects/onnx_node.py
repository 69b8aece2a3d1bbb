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
PARAMETERS: dict[str, list[str]] = {
    "LayerNormalization": ["gamma", "beta"],
    "Softmax": [],
    "LogSoftmax": [],
}
"""By operator: its inputs after x; those of others are gamma."""


def model(
    operator: str,
    eps: float | None,
    dtype: str = "float32",
    shape: Sequence[int | str] = ("rows", "size"),
    constants: Sequence[Array] = (),
    **attributes: Any,
) -> bytes:
    """Return a model of one node over the last axis; parameters may be constants of the model.

    An operator without eps has None.
    """
    helper: Any = import_module("onnx.helper")
    arrays: Any = import_module("onnx.numpy_helper")
    names = PARAMETERS.get(operator, ["gamma"])
    kind = TYPES[dtype]
    inputs = [helper.make_tensor_value_info("x", kind, list(shape))]
    if not constants:
        inputs += [helper.make_tensor_value_info(name, kind, [shape[-1]]) for name in names]
    known = [
        arrays.from_array(np.ascontiguousarray(array), name)
        for name, array in zip(names, constants, strict=bool(constants))
    ]
    if eps is not None:
        attributes["epsilon"] = float(eps)
    node = helper.make_node(operator, ["x", *names], ["y"], axis=-1, **attributes)
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
