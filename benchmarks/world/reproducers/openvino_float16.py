"""openvino 2026.4.1, CPU: RMSNormalization with inference in float16 squares x in float16."""

import math
from fractions import Fraction

import numpy as np
import onnx.helper as h
import openvino

HALF = 10  # float16 in ONNX


def info(name, shape):
    """Return an input or an output in float16."""
    return h.make_tensor_value_info(name, HALF, shape)


node = h.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1, epsilon=1e-6)
ends = [info("x", ["r", "d"]), info("w", ["d"])], [info("y", ["r", "d"])]
graph = h.make_graph([node], "g", *ends)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
core = openvino.Core()
print("default precision:", core.get_property("CPU", "INFERENCE_PRECISION_HINT"))
for precision in ("f32", "f16"):
    hint = {"INFERENCE_PRECISION_HINT": precision}
    norm = core.compile_model(core.read_model(model.SerializeToString()), "CPU", hint)
    for largest in (255, 256, 300):
        x = np.ones((1, 1024), "f2")
        x[0, 0] = largest
        square = sum(Fraction(float(each)) ** 2 for each in x[0]) / 1024
        exact = largest / math.sqrt(square + Fraction(1e-6))
        y = float(norm([x, np.ones(1024, "f2")])[0][0, 0])
        print(f"{precision}, an element of {largest} among ones: y = {y}, exact {exact:.4f}")
assert y == 0, "not reproduced"
