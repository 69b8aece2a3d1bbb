"""ggml_soft_max, and its own gradient."""

from typing import Any

import truenorm.verify as tv
from benchmarks.world.subjects.ggml_norms import base, run
from benchmarks.world.subjects.onnx_node import Array


def _forward(x: Array) -> tuple[Array, Array]:
    y = run(base.ggml_soft_max, x)
    return y, y


def _backward(dy: Array, y: Array) -> Array:
    def build(context: Any, *both: Any) -> Any:
        return base.ggml_soft_max_ext_back(context, *both, 1.0, 0.0)

    return run(build, dy, y)


softmax = tv.Subject(
    _forward, _backward, name="ggml_soft_max", operation="softmax", dtypes=["float32"]
)
