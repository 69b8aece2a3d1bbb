"""The reference evaluator of ONNX: Softmax and LogSoftmax."""

import numpy as np

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.onnx_norms import evaluator


def softmax(x: Array) -> Array:
    """Run Softmax."""
    return np.asarray(evaluator("Softmax", None, x.dtype.name).run(None, {"x": x})[0])


def log_softmax(x: Array) -> Array:
    """Run LogSoftmax."""
    return np.asarray(evaluator("LogSoftmax", None, x.dtype.name).run(None, {"x": x})[0])
