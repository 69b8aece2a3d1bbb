"""tract: Softmax and LogSoftmax."""

import numpy as np

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.tract_norms import runnable


def softmax(x: Array) -> Array:
    """Run Softmax."""
    return np.array(runnable("Softmax", None, x.dtype.name).run([x])[0].to_numpy())


def log_softmax(x: Array) -> Array:
    """Run LogSoftmax."""
    return np.array(runnable("LogSoftmax", None, x.dtype.name).run([x])[0].to_numpy())
