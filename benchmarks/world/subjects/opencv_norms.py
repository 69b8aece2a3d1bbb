"""The dnn module of OpenCV on a model of one ONNX node, whose parameters are constants."""

from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.world.subjects.onnx_node import Array, model

cv2: Any = import_module("cv2")
cv2.setNumThreads(1)


def run(content: bytes, x: Array) -> Array:
    """Run a model of an input x."""
    net = cv2.dnn.readNetFromONNX(np.frombuffer(content, np.uint8))
    net.setInput(x, "x")
    return np.array(net.forward()).reshape(x.shape)


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run LayerNormalization."""
    return run(model("LayerNormalization", eps, shape=x.shape, constants=(gamma, beta)), x)
