"""A function in the place of a kernel: what it is given, and what it returns."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from truenorm.verify.audit.replacing import MatchError, signature_of
from truenorm.verify.types import Array
from verify.audit.kernels import RESIDUAL, WEIGHT, X, replacing, rms_norm


class Two(NamedTuple):
    y: Array
    rstd: Array


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
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        found.instead_of(rms_norm)(X)
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


def odd(a: Array, b: Array, mode: str, c: float) -> Array:
    assert mode == "mode"
    return rms_norm(a, b, c)


def with_residual(x: Array, residual: Array, weight: Array, eps: float) -> Array:
    return rms_norm(x + residual, weight, eps)


def test_a_signature_says_what_names_do_not() -> None:
    y = replacing().instead_of(odd, "x, weight, _, eps")(X, WEIGHT, "mode", 1e-6)
    np.testing.assert_allclose(y, rms_norm(X, WEIGHT), rtol=1e-6)
    found = replacing()
    with pytest.raises(MatchError, match="by --signature 'x': too many positional arguments"):
        found.instead_of(rms_norm, "x")(X, WEIGHT)
    assert "--signature 'x'" in found.seen.raised
    with pytest.raises(MatchError, match="signature has 'rows', of which nothing is known"):
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
