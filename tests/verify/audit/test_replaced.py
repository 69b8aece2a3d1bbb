"""A function in the place of a kernel: what it is given, and what it returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from truenorm.verify.audit.arguments import MatchError, signature_of
from truenorm.verify.audit.kernel import Kernel
from truenorm.verify.audit.planted import planted_kernels
from truenorm.verify.audit.replaced import Replacing
from truenorm.verify.audit.seen import Seen
from truenorm.verify.operations import operation_of
from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 40)).astype(np.float32)
RESIDUAL = RANDOM.normal(size=X.shape).astype(np.float32)
WEIGHT = RANDOM.normal(size=40).astype(np.float32)
DY = RANDOM.normal(size=X.shape).astype(np.float32)


class Two(NamedTuple):
    y: Array
    rstd: Array


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    if x.shape[-1] != len(weight):
        raise ValueError("its own words")
    y: Array = weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
    return y


def replacing(name: str = "", operation: str = "rms_norm", eps: float | None = None) -> Replacing:
    norm = operation_of(operation)
    assert isinstance(norm, Norm)
    known = {each.name: each for each in planted_kernels(norm)}
    return Replacing(Kernel(norm, known[name] if name else None), Seen(), eps)


def test_the_right_kernel_and_a_wrong_one() -> None:
    right, zeros = replacing(), replacing("zeros")
    y = right.instead_of(rms_norm)(X, WEIGHT)
    assert (y.shape, y.dtype) == (X.shape, np.float32)
    np.testing.assert_allclose(y, rms_norm(X, WEIGHT), rtol=1e-6)
    assert not zeros.instead_of(rms_norm)(X, WEIGHT).any()
    assert (right.seen.calls, right.seen.dtypes, right.seen.largest) == (1, ["float32"], {})
    difference, size = zeros.seen.largest["y"]
    assert difference == size == pytest.approx(np.abs(y).max(), rel=1e-6)


def test_the_eps_of_a_call_counts() -> None:
    replaced = replacing().instead_of(rms_norm)
    for eps in (1e-6, 0.5):
        np.testing.assert_allclose(replaced(X, WEIGHT, eps=eps), rms_norm(X, WEIGHT, eps), 1e-6)

    def without(x: Array) -> Array:
        return rms_norm(x, WEIGHT * 0 + 1, 1e-2)

    np.testing.assert_allclose(replacing(eps=1e-2).instead_of(without)(X), without(X), rtol=1e-6)
    with pytest.raises(MatchError, match="give --eps"):
        replacing().instead_of(without)(X)


def test_another_eps_is_another_one() -> None:
    """Also where it is 1e-5 as some type has it."""
    for kind in (float, np.float32, np.float16):
        found = replacing("other eps")
        found.instead_of(rms_norm)(X * np.float32(1e-3), WEIGHT, kind(1e-5))
        difference, size = found.seen.largest["y"]
        assert difference > size / 2


def test_what_the_kernel_raises_is_its_own() -> None:
    found = replacing("zeros")
    with pytest.raises(ValueError, match="its own words"):
        found.instead_of(rms_norm)(X, WEIGHT[:5])
    assert found.seen.raised == ""


def test_kinds_of_results() -> None:
    """A statistic that is returned is that of the wrong kernel."""

    def two(x: Array, weight: Array, eps: float) -> Two:
        r = 1 / np.sqrt((x * x).mean(-1) + np.float32(eps))
        return Two(rms_norm(x, weight, eps), r)

    def listed(x: Array, weight: Array, eps: float) -> list[Any]:
        return [rms_norm(x, weight, eps), "more"]

    right, wrong = replacing().instead_of(two), replacing("no reduction, normal").instead_of(two)
    expected, found = two(X, WEIGHT, 1e-6), wrong(X, WEIGHT, 1e-6)
    np.testing.assert_allclose(right(X, WEIGHT, 1e-6).rstd, expected.rstd, rtol=1e-6)
    assert isinstance(found, Two)
    np.testing.assert_allclose(found.rstd, np.ones((2, 3)), rtol=1e-5)
    assert replacing("zeros").instead_of(listed)(X, WEIGHT, 1e-6)[1] == "more"


def test_results_that_are_written() -> None:
    def to_out(out: Array, x: Array, weight: Array, eps: float) -> None:
        out[...] = rms_norm(x, weight, eps)

    def in_place(x: Array, residual: Array, weight: Array, eps: float) -> None:
        residual += x
        x[...] = rms_norm(residual, weight, eps)

    def returns_out(x: Array, weight: Array, out: Array, eps: float = 1e-6) -> Array:
        out[...] = rms_norm(x, weight, eps)
        return out

    for name, scale in (("", 1.0), ("zeros", 0.0)):
        out = np.empty_like(X)
        assert replacing(name).instead_of(to_out)(out, X, WEIGHT, 1e-6) is None
        np.testing.assert_allclose(out, scale * rms_norm(X, WEIGHT), rtol=1e-6)
        assert replacing(name).instead_of(returns_out)(X, WEIGHT, out) is out
        x, residual = X.copy(), RESIDUAL.copy()
        assert (
            replacing(name, "add_rms_norm").instead_of(in_place)(x, residual, WEIGHT, 1e-6) is None
        )
        np.testing.assert_allclose(x, scale * rms_norm(X + RESIDUAL, WEIGHT), rtol=2e-6)
        np.testing.assert_array_equal(residual, X + RESIDUAL)


def test_a_sum_that_is_written_while_y_is_returned() -> None:
    def updated(x: Array, residual: Array, weight: Array, eps: float) -> Array:
        residual += x
        return rms_norm(residual, weight, eps)

    for name, scale in (("", 1.0), ("zeros for the sum", 0.0)):
        residual, found = RESIDUAL.copy(), replacing(name, "add_rms_norm")
        y = found.instead_of(updated)(X, residual, WEIGHT, 1e-6)
        np.testing.assert_allclose(y, rms_norm(X + RESIDUAL, WEIGHT), rtol=2e-6)
        np.testing.assert_array_equal(residual, scale * (X + RESIDUAL))
        assert found.seen.results == ["y", "sum"]


def gradients(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    xhat, g = x * r, dy * weight
    dx = r * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx.astype(x.dtype), (dy * xhat).sum((0, 1)).astype(x.dtype)


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

    found = replacing()
    run, back = found.instead_of(forward), found.instead_of(backward)
    kept = [run(x, WEIGHT, 1e-3)[1] for x in (X, RESIDUAL)]
    for x, saved in zip((X, RESIDUAL), kept, strict=True):
        for got, known in zip(back(DY, saved), gradients(DY, x, WEIGHT, 1e-3), strict=True):
            np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5)
    with pytest.raises(MatchError, match="neither x nor anything that the forward pass returned"):
        back(DY, {"x": X, "weight": WEIGHT, "eps": 1e-3})


def odd(a: Array, b: Array, mode: str, c: float) -> Array:
    assert mode == "mode"
    return rms_norm(a, b, c)


def with_residual(x: Array, residual: Array, weight: Array, eps: float) -> Array:
    return rms_norm(x + residual, weight, eps)


def test_a_signature_says_what_names_do_not() -> None:
    y = replacing().instead_of(odd, "x, weight, _, eps")(X, WEIGHT, "mode", 1e-6)
    np.testing.assert_allclose(y, rms_norm(X, WEIGHT), rtol=1e-6)
    with pytest.raises(ValueError, match="signature has 'rows', of which nothing is known"):
        signature_of("rows, weight")


@pytest.mark.parametrize(
    ("function", "arguments", "said"),
    [
        (odd, (X, WEIGHT, "mode", 1e-6), "x is none of its arguments: --signature"),
        (with_residual, (X, RESIDUAL, WEIGHT, 1e-6), "--operation add_rms_norm adds it"),
        (rms_norm, (X.astype(np.complex64), WEIGHT), "x is complex64; an audit knows float16"),
    ],
)
def test_calls_that_cannot_be_matched(
    function: Callable[..., Any], arguments: tuple[Any, ...], said: str
) -> None:
    found = replacing()
    with pytest.raises(MatchError, match=said):
        found.instead_of(function)(*arguments)
    assert said in found.seen.raised


def test_several_axes_are_one_row() -> None:
    def layer_norm(x: Array, normalized_shape: tuple[int, ...], eps: float = 1e-5) -> Array:
        axes = tuple(range(-len(normalized_shape), 0))
        c = x - x.mean(axes, keepdims=True)
        y: Array = c / np.sqrt((c * c).mean(axes, keepdims=True) + np.float32(eps))
        return y

    y = replacing("", "layer_norm").instead_of(layer_norm)(X, (3, 40))
    np.testing.assert_allclose(y, layer_norm(X, (3, 40)), rtol=1e-5, atol=1e-6)
