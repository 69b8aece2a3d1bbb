"""ONNX Runtime's CPU provider: Softmax and LogSoftmax."""

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.onnxruntime_norms import session


def softmax(x: Array) -> Array:
    """Run Softmax."""
    y: Array = session("Softmax", None, x.dtype.name).run(None, {"x": x})[0]
    return y


def log_softmax(x: Array) -> Array:
    """Run LogSoftmax."""
    y: Array = session("LogSoftmax", None, x.dtype.name).run(None, {"x": x})[0]
    return y
