"""onnx 1.23.2: the reference evaluator adds up rows of float16 in float16."""

import math
from fractions import Fraction

import numpy as np
import onnx.helper as h
from onnx.reference import ReferenceEvaluator


def info(name, shape):
    """Return an input or an output in float16."""
    return h.make_tensor_value_info(name, 10, shape)


node = h.make_node("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1, epsilon=1e-5)
inputs = [info("x", ["r", "d"]), info("w", ["d"]), info("b", ["d"])]
graph = h.make_graph([node], "g", inputs, [info("y", ["r", "d"])])
evaluator = ReferenceEvaluator(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))
size = 1024
parameters = {"w": np.ones(size, "f2"), "b": np.zeros(size, "f2")}
with np.errstate(all="ignore"):
    for mean in (0, 10, 100):
        x = (np.random.default_rng(0).standard_normal((1, size)) + mean).astype("f2")
        row = [Fraction(v) for v in x[0].tolist()]
        mu = sum(row) / size
        rms = math.sqrt(sum((v - mu) ** 2 for v in row) / size + Fraction(1e-5))
        (y,) = evaluator.run(None, {"x": x, **parameters})
        print(f"mean {mean}: y = {y[0, 0]}, exact {float(row[0] - mu) / rms:.4f}")
assert math.isnan(y[0, 0]), "not reproduced"
