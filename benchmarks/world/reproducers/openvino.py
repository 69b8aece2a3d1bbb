"""openvino 2026.4.1, CPU: the error of RMSNormalization in float32 grows with the row."""

import math
from fractions import Fraction

import numpy as np
import onnx.helper as h
import openvino


def info(name, shape):
    """Return an input or an output in float32."""
    return h.make_tensor_value_info(name, 1, shape)


node = h.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1, epsilon=1e-6)
ends = [info("x", ["r", "d"]), info("w", ["d"])], [info("y", ["r", "d"])]
graph = h.make_graph([node], "g", *ends)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
core = openvino.Core()
norm = core.compile_model(core.read_model(model.SerializeToString()), "CPU")
for size in (1024, 16384, 262144, 2**24):
    x = np.full((1, size), 0.7, "f4")
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(1e-6))
    y = float(norm([x, np.ones(size, "f4")])[0][0, 0])
    print(f"D = {size}: y = {y:.8f}, exact {exact:.8f}, off by {abs(y - exact):.2g}")
assert abs(y - exact) > 1e-3, "not reproduced"
