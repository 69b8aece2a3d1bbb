"""ncnn's layer Softmax."""

from benchmarks.world.subjects.ncnn_norms import run
from benchmarks.world.subjects.onnx_node import Array


def softmax(x: Array) -> Array:
    """Run Softmax along each row; "1=1" is the version of the option for the axis."""
    return run("Softmax", "0=1 1=1", x)
