"""Fast mode: bits depend neither on threads nor on the batch nor on the layout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.checking import BACKENDS

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

Array = np.ndarray[Any, Any]
FAST: dict[str, Any] = {"rounding": "fast", "backend": "native"}
SHAPES = [(300, 64), (64, 1000), (1030, 129), (9, 5000), (700, 3)]


def inputs(shape: tuple[int, int]) -> tuple[Array, Array, Array, Array]:
    """Return x, gamma, beta and dy, with rows that float32 cannot hold among the others."""
    rng = np.random.default_rng(7)
    x, dy = rng.standard_normal((2, *shape)).astype(np.float32)
    x[2] *= np.float32(1e25)
    dy[5] *= np.float32(1e-30)
    gamma, beta = rng.standard_normal((2, shape[1])).astype(np.float32)
    return x, gamma, beta, dy


def layer_norm(x: Array, gamma: Array, beta: Array, dy: Array, **options: Any) -> list[bytes]:
    y, saved = tn.layer_norm_forward(x, gamma, beta, **FAST, **options)
    gradients = tn.layer_norm_backward(dy, saved, backend="native")
    return [each.tobytes() for each in (y, *gradients) if each is not None]


def rms_norm(x: Array, gamma: Array, _beta: Array, dy: Array, **options: Any) -> list[bytes]:
    y, saved = tn.rms_norm_forward(x, gamma, **FAST, **options)
    gradients = tn.rms_norm_backward(dy, saved, backend="native")
    return [each.tobytes() for each in (y, *gradients) if each is not None]


of_both_norms = pytest.mark.parametrize("norm", [layer_norm, rms_norm])
of_all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
Norm = Callable[..., list[bytes]]


@of_both_norms
@of_all_shapes
def test_threads(norm: Norm, shape: tuple[int, int]) -> None:
    given = inputs(shape)
    one = norm(*given, threads=1)
    for threads in (2, 3, 8):
        assert norm(*given, threads=threads) == one


@of_both_norms
@of_all_shapes
def test_batch(norm: Norm, shape: tuple[int, int]) -> None:
    x, gamma, beta, dy = inputs(shape)
    y, dx = norm(x, gamma, beta, dy)[:2]
    rows = [norm(x[i : i + 1], gamma, beta, dy[i : i + 1])[:2] for i in range(len(x))]
    assert b"".join(row[0] for row in rows) == y
    assert b"".join(row[1] for row in rows) == dx


@of_both_norms
@of_all_shapes
def test_layout(norm: Norm, shape: tuple[int, int]) -> None:
    """Arrays that are not contiguous take the way of the driver."""
    x, gamma, beta, dy = inputs(shape)
    expected = norm(x, gamma, beta, dy)
    assert norm(np.asfortranarray(x), gamma, beta, np.asfortranarray(dy)) == expected
    assert norm(x, gamma, beta, np.asfortranarray(dy)) == expected
