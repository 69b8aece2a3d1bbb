"""mlx.core.softmax and the losses of mlx.nn on a CPU."""

from importlib import import_module
from typing import Any

from benchmarks.world.subjects.mlx_norms import mx, subject
from benchmarks.world.subjects.onnx_node import Array

nn: Any = import_module("mlx.nn")


def _softmax(x: Any) -> Any:
    return mx.softmax(x, axis=-1)


def _cross_entropy(x: Any, label: Array) -> Any:
    return nn.losses.cross_entropy(x, mx.array(label))


softmax = subject(_softmax, "mlx.core.softmax", "softmax")
log_softmax = subject(nn.log_softmax, "mlx.nn.log_softmax", "log_softmax")
cross_entropy = subject(_cross_entropy, "mlx.nn.losses.cross_entropy", "cross_entropy")
