"""The dnn module of OpenCV: Softmax and LogSoftmax."""

from benchmarks.world.subjects.onnx_node import Array, model
from benchmarks.world.subjects.opencv_norms import run


def softmax(x: Array) -> Array:
    """Run Softmax."""
    return run(model("Softmax", None, shape=x.shape), x)


def log_softmax(x: Array) -> Array:
    """Run LogSoftmax."""
    return run(model("LogSoftmax", None, shape=x.shape), x)
