"""onnxruntime 1.31.1, CPU: the error of RMSNormalization grows with the length of a row."""

import math
from fractions import Fraction

import numpy as np
import onnx.helper as h
import onnxruntime


def info(name, shape):
    """Return an input or an output in float32."""
    return h.make_tensor_value_info(name, 1, shape)


node = h.make_node("RMSNormalization", ["x", "w"], ["y"], axis=-1, epsilon=1e-6)
graph = h.make_graph(
    [node], "g", [info("x", ["r", "d"]), info("w", ["d"])], [info("y", ["r", "d"])]
)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 23)], ir_version=10)
run = onnxruntime.InferenceSession(model.SerializeToString()).run
for size in (1024, 16384, 262144, 2**24):
    x = np.full((1, size), 0.7, "f4")
    value = Fraction(float(x[0, 0]))
    exact = float(value) / math.sqrt(value**2 + Fraction(1e-6))
    y = float(run(None, {"x": x, "w": np.ones(size, "f4")})[0][0, 0])
    print(f"D = {size}: y = {y:.8f}, exact {exact:.8f}, off by {abs(y - exact):.2g}")
assert abs(y - exact) > 1e-4, "not reproduced"
