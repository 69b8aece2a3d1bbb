"""openvino 2026.4.1, CPU: RMSNormalization in float16 returns zeros for numbers above 256."""

import math
from fractions import Fraction

import numpy as np
import onnx.helper as h
import openvino


def norm(kind, precision):
    """Compile a model of one node."""
    ends = [
        h.make_tensor_value_info("x", kind, ["r", "d"]),
        h.make_tensor_value_info("w", kind, ["d"]),
    ]
    node = h.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1, epsilon=1e-6)
    out = [h.make_tensor_value_info("y", kind, ["r", "d"])]
    graph = h.make_graph([node], "g", ends, out)
    made = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
    core = openvino.Core()
    hint = {"INFERENCE_PRECISION_HINT": precision}
    return core.compile_model(core.read_model(made.SerializeToString()), "CPU", hint)


half, single = norm(10, "f16"), norm(1, "f32")
for value in (100, 250, 260, 1000):
    x = np.full((1, 64), value, "f2")
    y = half([x, np.ones(64, "f2")])[0]
    print(f"float16, rows of {value}: y = {float(y[0, 0]):.4g}, exact 1")
for size in (1024, 16384, 262144, 2**24):
    x = np.full((1, size), 0.7, "f4")
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(1e-6))
    error = abs(float(single([x, np.ones(size, "f4")])[0][0, 0]) - exact)
    print(f"float32, D = {size}: y is off by {error:.2g}")
assert y[0, 0] == 0, "not reproduced"
