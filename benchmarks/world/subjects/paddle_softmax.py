"""paddle.nn.functional: softmax, log_softmax and cross_entropy on a CPU."""

from typing import Any

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.paddle_norms import functional, paddle, subject


def _cross_entropy(x: Any, label: Array) -> Any:
    return functional.cross_entropy(x, paddle.to_tensor(label), reduction="none")


softmax = subject(functional.softmax, "paddle softmax", "softmax")
log_softmax = subject(functional.log_softmax, "paddle log_softmax", "log_softmax")
cross_entropy = subject(_cross_entropy, "paddle cross_entropy", "cross_entropy")
