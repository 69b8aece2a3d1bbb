"""tract 0.23.9: LayerNormalization adds up a row one by one; equal rows get different bits."""

import math
from fractions import Fraction

import numpy as np
import onnx
import onnx.helper as h
import tract


def info(name, shape):
    """Return an input or an output in float32."""
    return h.make_tensor_value_info(name, 1, shape)


node = h.make_node("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1, epsilon=1e-5)
inputs = [info("x", ["r", "d"]), info("w", ["d"]), info("b", ["d"])]
graph = h.make_graph([node], "g", inputs, [info("y", ["r", "d"])])
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "norm.onnx")
run = tract.onnx().load("norm.onnx").into_model().into_runnable().run
for size in (1024, 16384, 262144, 2**22):
    x = np.where(np.arange(size) % 2, 0.7, -0.7).astype("f4")[None]
    value = Fraction(float(x[0, 1]))  # the mean of the row is 0
    exact = float(value) / math.sqrt(value**2 + Fraction(1e-5))
    y = run([x, np.ones(size, "f4"), np.zeros(size, "f4")])[0].to_numpy()
    error = np.abs(np.abs(y.astype("f8")) - exact).max()
    print(f"D = {size}: y is off by {error:.2g}")
x = np.tile(np.random.default_rng(0).standard_normal(67).astype("f4"), (300, 1))
y = run([x, np.ones(67, "f4"), np.zeros(67, "f4")])[0].to_numpy()
print("300 equal rows have", len({row.tobytes() for row in y}), "different results")
assert error > 1e-4, "not reproduced"
