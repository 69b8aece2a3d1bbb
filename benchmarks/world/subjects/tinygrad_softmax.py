"""tinygrad's Tensor.softmax, log_softmax and cross-entropy on a CPU, with its gradients."""

from collections.abc import Callable
from typing import Any

import truenorm.verify as tv
from benchmarks.world.subjects.arguments import split
from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.tinygrad_norms import from_tinygrad, tinygrad, to_tinygrad


def _subject(function: Callable[..., Any], name: str) -> tv.Subject:
    def forward(*arguments: Any) -> tuple[Array, Any]:
        (x,), labels = split(arguments)
        tensor = to_tinygrad(x)
        y = function(tensor, *map(tinygrad.Tensor, labels))
        return from_tinygrad(y), (y, tensor)

    def backward(dy: Array, saved: Any) -> Array:
        y, tensor = saved
        (dx,) = y.gradient(tensor, gradient=to_tinygrad(dy))
        return from_tinygrad(dx)

    return tv.Subject(
        forward, backward, name=f"tinygrad {name}", operation=name, dtypes=["float32"]
    )


def _cross_entropy(x: Any, label: Any) -> Any:
    return x.sparse_categorical_crossentropy(label, reduction="none")


softmax = _subject(tinygrad.Tensor.softmax, "softmax")
log_softmax = _subject(tinygrad.Tensor.log_softmax, "log_softmax")
cross_entropy = _subject(_cross_entropy, "cross_entropy")
