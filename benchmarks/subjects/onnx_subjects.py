"""A model of one ONNX node, by the reference evaluator (NumPy) and by ONNX Runtime on the CPU.

Neither has a backward pass.
"""

from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm.verify as tv

onnx: Any = import_module("onnx")
reference: Any = import_module("onnx.reference")
runtime: Any = import_module("onnxruntime")

Array = NDArray[Any]
DTYPES = ["float16", "bfloat16", "float32", "float64"]
# Parameters, and the version of the operator set that introduced each: old versions are what every
# runtime reads. The last one is ONNX Runtime's own.
OPERATORS = {
    "LayerNormalization": (("gamma", "beta"), 17),
    "RMSNormalization": (("gamma",), 23),
    "SimplifiedLayerNormalization": (("gamma",), 17),
}
TYPES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}


def type_of(dtype: str) -> int:
    """Return ONNX's number of a type."""
    value: int = getattr(onnx.TensorProto, TYPES[dtype])
    return value


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


def evaluate(operator: str, x: Array, *arguments: Any) -> Array:
    """Run the reference evaluator; the arguments are the parameters and eps."""
    *parameters, eps = arguments
    evaluator = reference.ReferenceEvaluator(model(operator, x.dtype.name, eps))
    names, _ = OPERATORS[operator]
    (y,) = evaluator.run(None, {"x": x, **dict(zip(names, parameters, strict=True))})
    return np.asarray(y)


@cache
def session(operator: str, dtype: str, eps: float) -> Any:
    """Return a session of ONNX Runtime with its default settings."""
    serialized = model(operator, dtype, eps).SerializeToString()
    return runtime.InferenceSession(serialized, providers=["CPUExecutionProvider"])


def value(array: Array) -> Any:
    """Return a value over the same memory; NumPy's bfloat16 is passed as bits."""
    name = array.dtype.name
    bits = array.view(np.uint16) if name == "bfloat16" else array
    return runtime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, type_of(name))


def run(operator: str, x: Array, *arguments: Any) -> Array:
    """Run ONNX Runtime, with inputs and output bound to arrays."""
    *parameters, eps = arguments
    names, _ = OPERATORS[operator]
    y = np.empty_like(x)
    chosen = session(operator, x.dtype.name, eps)
    binding = chosen.io_binding()
    for name, array in zip(("x", *names), (x, *parameters), strict=True):
        binding.bind_ortvalue_input(name, value(array))
    binding.bind_ortvalue_output("y", value(y))
    chosen.run_with_iobinding(binding)
    return y


def subject(
    call: Any, operator: str, name: str, dtypes: list[str], operation: Any = tv.RMS_NORM
) -> tv.Subject:
    """Return a subject without backward."""
    return tv.Subject(partial(call, operator), name=name, dtypes=dtypes, operation=operation)


EVALUATOR, RUNTIME = "ONNX reference evaluator", "ONNX Runtime"
LAYER_NORM = "LayerNormalization"
layer_norm = subject(evaluate, LAYER_NORM, EVALUATOR, DTYPES, tv.LAYER_NORM)
rms_norm = subject(evaluate, "RMSNormalization", EVALUATOR, DTYPES)
runtime_layer_norm = subject(run, LAYER_NORM, RUNTIME, DTYPES, tv.LAYER_NORM)
# Its RMSNormalization is made of other operators, one of which has no bfloat16.
runtime_rms_norm = subject(run, "RMSNormalization", RUNTIME, ["float16", "float32", "float64"])
simplified = subject(run, "SimplifiedLayerNormalization", f"{RUNTIME}, simplified", DTYPES)
