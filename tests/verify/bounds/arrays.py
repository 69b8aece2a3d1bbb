"""An input, and its results, correctly rounded."""

from typing import Any

import numpy as np

import truenorm as tn
from truenorm.verify.types import dtype_of

SHAPE = (3, 4, 32)


def given(shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> dict[str, Any]:
    random = np.random.default_rng(5)
    kind = dtype_of(dtype)
    rows = {name: random.normal(size=shape).astype(kind) for name in ("x", "dy")}
    columns = {name: random.normal(size=shape[-1]).astype(kind) for name in ("gamma", "beta")}
    return {**rows, **columns}


def computed(x: Any, gamma: Any, beta: Any, dy: Any) -> tuple[Any, ...]:
    y, saved = tn.layer_norm_forward(x, gamma, beta, eps=1e-5, backend="reference")
    return (y, *tn.layer_norm_backward(dy, saved, backend="reference"))
