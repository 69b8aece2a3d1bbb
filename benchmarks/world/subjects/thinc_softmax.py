"""thinc.api.NumpyOps: softmax, with its own gradient."""

import truenorm.verify as tv
from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.thinc_norms import api

ops = api.NumpyOps()


def forward(x: Array) -> tuple[Array, Array]:
    """Run NumpyOps.softmax."""
    y: Array = ops.softmax(x)
    return y, y


def backward(dy: Array, y: Array) -> Array:
    """Run NumpyOps.backprop_softmax."""
    dx: Array = ops.backprop_softmax(y, dy)
    return dx


softmax = tv.Subject(
    forward, backward, name="thinc softmax", dtypes=["float32"], operation="softmax"
)
