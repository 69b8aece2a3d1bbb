"""Partials of the same rows are equal to the byte, and round to what one call gives."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn

Array = np.ndarray[Any, np.dtype[Any]]


def partial(norm: str, x: Array, dy: Array, gamma: Array) -> tn.PartialGradients:
    parameters = (gamma, gamma) if norm == "layer_norm" else (gamma,)
    _, saved = getattr(tn, f"{norm}_forward")(x, *parameters)
    found: tn.PartialGradients = getattr(tn, f"{norm}_backward_partial")(dy, saved)[1]
    return found


@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_two_parts_are_the_whole(norm: str) -> None:
    x, dy = np.random.default_rng(0).standard_normal((2, 50, 37)).astype(np.float32)
    gamma = np.ones(37, np.float32)
    whole = partial(norm, x, dy, gamma)
    parts = partial(norm, x[20:], dy[20:], gamma) + partial(norm, x[:20], dy[:20], gamma)
    assert parts.tobytes() == whole.tobytes()
    parameters = (gamma, gamma) if norm == "layer_norm" else (gamma,)
    _, saved = getattr(tn, f"{norm}_forward")(x, *parameters)
    found = getattr(tn, f"{norm}_backward")(dy, saved)
    assert whole.rounded().dgamma.tobytes() == found.dgamma.tobytes()  # type: ignore[union-attr]
