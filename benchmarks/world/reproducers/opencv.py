"""opencv-python-headless 5.0.0.93: LayerNormalization of cv2.dnn loses all digits of y."""

import math
from fractions import Fraction

import cv2
import numpy as np
import onnx.helper as h
from onnx.numpy_helper import from_array

size, eps, rng = 768, 1e-5, np.random.default_rng(0)
info = h.make_tensor_value_info
node = h.make_node("LayerNormalization", ["x", "w", "b"], ["y"], axis=-1, epsilon=eps)
weights = [from_array(np.ones(size, "f4"), "w"), from_array(np.zeros(size, "f4"), "b")]
ends = [info("x", 1, [1, size])], [info("y", 1, [1, size])]
graph = h.make_graph([node], "g", *ends, weights)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=8)
net = cv2.dnn.readNetFromONNX(np.frombuffer(model.SerializeToString(), np.uint8))
noise = rng.standard_normal((1, size))
for mean in (0, 10, 100, 1000):
    x = (noise + mean).astype("f4")
    net.setInput(x)
    row = [Fraction(v) for v in x[0].tolist()]
    mu = sum(row) / size
    rms = math.sqrt(sum((v - mu) ** 2 for v in row) / size + Fraction(eps))
    error = max(
        abs(y - (v - mu) / rms) for y, v in zip(net.forward()[0].tolist(), row, strict=True)
    )
    print(f"mean {mean}: y is off by {float(error):.3g}")
assert error > 1, "not reproduced"
