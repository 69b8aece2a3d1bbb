"""onnx 1.23.2: the reference evaluator adds up exp(x) of bfloat16 in bfloat16."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import onnx.helper as h
from onnx.reference import ReferenceEvaluator

BFLOAT16 = 16  # its number in ONNX


def evaluator(operator):
    """Return an evaluator of one node on rows of bfloat16."""
    info = [h.make_tensor_value_info(name, BFLOAT16, ["r", "d"]) for name in "xy"]
    graph = h.make_graph([h.make_node(operator, ["x"], ["y"], axis=-1)], "g", info[:1], info[1:])
    return ReferenceEvaluator(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)]))


softmax, log_softmax = evaluator("Softmax"), evaluator("LogSoftmax")
for size in (256, 1024, 16384):
    x = np.zeros((1, size), ml_dtypes.bfloat16)
    exact = Fraction(1, size)  # of equal elements
    times = Fraction(float(softmax.run(None, {"x": x})[0][0, 0])) / exact
    y = float(log_softmax.run(None, {"x": x})[0][0, 0])
    print(f"D = {size}: softmax is {float(times):g} times the exact 1/{size};", end=" ")
    print(f"its logarithm is {y:.3f}, exact {-math.log(size):.3f}")
assert times > 60, "not reproduced"
