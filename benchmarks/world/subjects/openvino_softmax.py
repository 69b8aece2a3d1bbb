"""OpenVINO's CPU plugin: Softmax and LogSoftmax."""

import numpy as np

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.openvino_norms import compiled


def softmax(x: Array) -> Array:
    """Run Softmax."""
    return np.array(compiled("Softmax", None, x.dtype.name)([x])[0])


def log_softmax(x: Array) -> Array:
    """Run LogSoftmax."""
    return np.array(compiled("LogSoftmax", None, x.dtype.name)([x])[0])
