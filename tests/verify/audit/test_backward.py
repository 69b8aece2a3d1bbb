"""A backward pass that is a function of its own, with another one in its place."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from truenorm.verify.audit.replacing import MatchError
from truenorm.verify.types import Array
from verify.audit.kernels import DY, RESIDUAL, WEIGHT, X, gradients, replacing, rms_norm


def of_arguments(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    return gradients(dy, x, weight, eps)


def test_backward_of_explicit_arguments() -> None:
    expected = gradients(DY, X, WEIGHT, 1e-3)
    right, half = replacing(), replacing("dgamma of half the rows")
    for found, known in zip(
        right.instead_of(of_arguments)(DY, X, WEIGHT, 1e-3), expected, strict=True
    ):
        np.testing.assert_allclose(found, known, rtol=1e-4, atol=1e-5)
    dx, dgamma = half.instead_of(of_arguments)(DY, X, WEIGHT, 1e-3)
    np.testing.assert_allclose(dx, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        dgamma, gradients(DY[:1], X[:1], WEIGHT, 1e-3)[1], rtol=1e-4, atol=1e-5
    )
    assert (half.seen.calls, half.seen.backwards) == (0, 1)


def test_what_was_given_and_replaced_is_noted() -> None:
    def dx_alone(dy: Array, x: Array, weight: Array, eps: float) -> Array:
        return gradients(dy, x, weight, eps)[0]

    def without_weight(x: Array, eps: float) -> Array:
        return rms_norm(x, np.ones_like(WEIGHT), eps)

    found = replacing("no eps")
    found.instead_of(without_weight)(X, 1e-3)
    assert (found.seen.arguments, found.seen.results) == (["x"], ["y"])
    found.instead_of(dx_alone)(DY, X, WEIGHT, 1e-3)
    assert found.seen.results == list(found.seen.largest) == ["y", "dx"]
    assert set(found.seen.arguments) == {"x", "gamma", "dy"}


def test_backward_of_what_forward_saved() -> None:
    def forward(x: Array, weight: Array, eps: float) -> tuple[Array, Any]:
        return rms_norm(x, weight, eps), {"x": x, "weight": weight, "eps": eps}

    def backward(dy: Array, saved: Any) -> tuple[Array, Array]:
        return gradients(dy, **saved)

    found = replacing(remembers=True)
    run, back = found.instead_of(forward), found.instead_of(backward)
    kept = [run(x, WEIGHT, 1e-3)[1] for x in (X, RESIDUAL)]
    for x, saved in zip((X, RESIDUAL), kept, strict=True):
        for got, known in zip(back(DY, saved), gradients(DY, x, WEIGHT, 1e-3), strict=True):
            np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5)
    with pytest.raises(MatchError, match="neither x nor anything that the forward pass returned"):
        back(DY, {"x": X, "weight": WEIGHT, "eps": 1e-3})


def test_calls_are_kept_for_a_backward_pass_alone() -> None:
    for remembers in (False, True):
        x = X.copy()
        kept = weakref.ref(x)
        found = replacing(remembers=remembers).instead_of(rms_norm)
        found(x, WEIGHT)
        del x
        gc.collect()
        assert (kept() is not None) == remembers
