"""Replaced functions: their arguments, results, backward passes and observations."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from truenorm.verify.audit.planted import Kernel, planted_bugs
from truenorm.verify.audit.replacing import MatchError, Observations, Replacer, parse_signature
from truenorm.verify.operations import RMS_NORM, parse_operation
from truenorm.verify.types import Array

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 3, 40)).astype(np.float32)
RESIDUAL = RANDOM.normal(size=X.shape).astype(np.float32)
WEIGHT = RANDOM.normal(size=40).astype(np.float32)
DY = RANDOM.normal(size=X.shape).astype(np.float32)


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """Return y, or raise an exception of its own."""
    if x.shape[-1] != len(weight):
        raise ValueError("its own words")
    y: Array = weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(eps))
    return y


def replacer(
    name: str = "",
    operation: str = "rms_norm",
    eps: float | None = None,
    *,
    keeps_calls: bool = False,
) -> Replacer:
    """Return a replacer by a kernel without a bug, or with a planted one."""
    norm = parse_operation(operation)
    bugs = {bug.name: bug for bug in planted_bugs(norm)}
    kernel = Kernel(norm, bugs[name] if name else None)
    return Replacer(kernel, Observations(), eps, keeps_calls=keeps_calls)


def gradients(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    xhat, g = x * r, dy * weight
    dx = r * (g - xhat * (g * xhat).mean(-1, keepdims=True))
    return dx.astype(x.dtype), (dy * xhat).sum((0, 1)).astype(x.dtype)


class Two(NamedTuple):
    y: Array
    rstd: Array


def test_kernels_with_and_without_a_bug() -> None:
    right, zeros = replacer(), replacer("zeros")
    y = right.wrap(rms_norm)(X, WEIGHT)
    assert (y.shape, y.dtype) == (X.shape, np.float32)
    np.testing.assert_allclose(y, rms_norm(X, WEIGHT), rtol=1e-6)
    assert not zeros.wrap(rms_norm)(X, WEIGHT).any()
    assert (right.observations.calls, right.observations.dtypes) == (1, ["float32"])
    assert not right.observations.largest
    difference, size = zeros.observations.largest["y"]
    assert difference == size == pytest.approx(np.abs(y).max(), rel=1e-6)


def test_eps_of_a_call() -> None:
    replaced = replacer().wrap(rms_norm)
    for eps in (1e-6, 0.5):
        np.testing.assert_allclose(replaced(X, WEIGHT, eps=eps), rms_norm(X, WEIGHT, eps), 1e-6)

    def without(x: Array) -> Array:
        return rms_norm(x, WEIGHT * 0 + 1, 1e-2)

    np.testing.assert_allclose(replacer(eps=1e-2).wrap(without)(X), without(X), rtol=1e-6)
    with pytest.raises(MatchError, match="give --eps"):
        replacer().wrap(without)(X)


def test_other_eps_in_any_type() -> None:
    """The eps may be 1e-5 rounded to a type."""
    for kind in (float, np.float32, np.float16):
        replaced = replacer("other eps")
        replaced.wrap(rms_norm)(X * np.float32(1e-3), WEIGHT, kind(1e-5))
        difference, size = replaced.observations.largest["y"]
        assert difference > size / 2


def test_exceptions_of_the_kernel() -> None:
    replaced = replacer("zeros")
    with pytest.raises(ValueError, match="its own words"):
        replaced.wrap(rms_norm)(X, WEIGHT[:5])
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
        replaced.wrap(rms_norm)(X)
    assert replaced.observations.error == ""


def test_types_of_results() -> None:
    """A returned statistic is that of the wrong kernel."""

    def two(x: Array, weight: Array, eps: float) -> Two:
        r = 1 / np.sqrt((x * x).mean(-1) + np.float32(eps))
        return Two(rms_norm(x, weight, eps), r)

    def listed(x: Array, weight: Array, eps: float) -> list[Any]:
        return [rms_norm(x, weight, eps), "more"]

    right, wrong = replacer().wrap(two), replacer("no reduction, normal").wrap(two)
    expected, returned = two(X, WEIGHT, 1e-6), wrong(X, WEIGHT, 1e-6)
    np.testing.assert_allclose(right(X, WEIGHT, 1e-6).rstd, expected.rstd, rtol=1e-6)
    assert isinstance(returned, Two)
    np.testing.assert_allclose(returned.rstd, np.ones((2, 3)), rtol=1e-5)
    assert replacer("zeros").wrap(listed)(X, WEIGHT, 1e-6)[1] == "more"


def test_results_written_in_place() -> None:
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
        assert replacer(name).wrap(to_out)(out, X, WEIGHT, 1e-6) is None
        np.testing.assert_allclose(out, scale * rms_norm(X, WEIGHT), rtol=1e-6)
        assert replacer(name).wrap(returns_out)(X, WEIGHT, out) is out
        x, residual = X.copy(), RESIDUAL.copy()
        assert replacer(name, "add_rms_norm").wrap(in_place)(x, residual, WEIGHT, 1e-6) is None
        np.testing.assert_allclose(x, scale * rms_norm(X + RESIDUAL, WEIGHT), rtol=2e-6)
        np.testing.assert_array_equal(residual, X + RESIDUAL)


def test_sum_written_and_y_returned() -> None:
    def updated(x: Array, residual: Array, weight: Array, eps: float) -> Array:
        residual += x
        return rms_norm(residual, weight, eps)

    for name, scale in (("", 1.0), ("zeros for the sum", 0.0)):
        residual, replaced = RESIDUAL.copy(), replacer(name, "add_rms_norm")
        y = replaced.wrap(updated)(X, residual, WEIGHT, 1e-6)
        np.testing.assert_allclose(y, rms_norm(X + RESIDUAL, WEIGHT), rtol=2e-6)
        np.testing.assert_array_equal(residual, scale * (X + RESIDUAL))
        assert replaced.observations.results == ["y", "sum"]


def odd(a: Array, b: Array, mode: str, c: float) -> Array:
    assert mode == "mode"
    return rms_norm(a, b, c)


def with_residual(x: Array, residual: Array, weight: Array, eps: float) -> Array:
    return rms_norm(x + residual, weight, eps)


def test_signatures() -> None:
    y = replacer().wrap(odd, "x, weight, _, eps")(X, WEIGHT, "mode", 1e-6)
    np.testing.assert_allclose(y, rms_norm(X, WEIGHT), rtol=1e-6)
    replaced = replacer()
    with pytest.raises(MatchError, match="by --signature 'x': too many positional arguments"):
        replaced.wrap(rms_norm, "x")(X, WEIGHT)
    assert "--signature 'x'" in replaced.observations.error
    with pytest.raises(MatchError, match="signature has the unknown name 'rows'"):
        parse_signature("rows, weight", RMS_NORM)


@pytest.mark.parametrize(("function", "arguments", "message"), [
    (odd, (X, WEIGHT, "mode", 1e-6), "no argument for x: give the names"),
    (with_residual, (X, RESIDUAL, WEIGHT, 1e-6), "give --operation add_rms_norm"),
    (rms_norm, (X.astype(np.complex64), WEIGHT), "float32, float64; got complex64"),
])  # fmt: skip
def test_calls_that_cannot_be_matched(
    function: Callable[..., Any], arguments: tuple[Any, ...], message: str
) -> None:
    replaced = replacer()
    with pytest.raises(MatchError, match=message):
        replaced.wrap(function)(*arguments)
    assert message in replaced.observations.error


def test_rows_of_several_axes() -> None:
    def layer_norm(x: Array, normalized_shape: tuple[int, ...], eps: float = 1e-5) -> Array:
        axes = tuple(range(-len(normalized_shape), 0))
        c = x - x.mean(axes, keepdims=True)
        y: Array = c / np.sqrt((c * c).mean(axes, keepdims=True) + np.float32(eps))
        return y

    y = replacer("", "layer_norm").wrap(layer_norm)(X, (3, 40))
    np.testing.assert_allclose(y, layer_norm(X, (3, 40)), rtol=1e-5, atol=1e-6)


def of_arguments(dy: Array, x: Array, weight: Array, eps: float) -> tuple[Array, Array]:
    return gradients(dy, x, weight, eps)


def test_backward_of_explicit_arguments() -> None:
    expected = gradients(DY, X, WEIGHT, 1e-3)
    right, half = replacer(), replacer("dgamma of half the rows")
    for gradient, known in zip(
        right.wrap(of_arguments)(DY, X, WEIGHT, 1e-3), expected, strict=True
    ):
        np.testing.assert_allclose(gradient, known, rtol=1e-4, atol=1e-5)
    dx, dgamma = half.wrap(of_arguments)(DY, X, WEIGHT, 1e-3)
    np.testing.assert_allclose(dx, expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        dgamma, gradients(DY[:1], X[:1], WEIGHT, 1e-3)[1], rtol=1e-4, atol=1e-5
    )
    assert (half.observations.calls, half.observations.backward_calls) == (0, 1)


def test_observed_names() -> None:
    def dx_alone(dy: Array, x: Array, weight: Array, eps: float) -> Array:
        return gradients(dy, x, weight, eps)[0]

    def without_weight(x: Array, eps: float) -> Array:
        return rms_norm(x, np.ones_like(WEIGHT), eps)

    replaced = replacer("no eps")
    replaced.wrap(without_weight)(X, 1e-3)
    assert (replaced.observations.arguments, replaced.observations.results) == (["x"], ["y"])
    replaced.wrap(dx_alone)(DY, X, WEIGHT, 1e-3)
    assert replaced.observations.results == list(replaced.observations.largest) == ["y", "dx"]
    assert set(replaced.observations.arguments) == {"x", "gamma", "dy"}


def test_backward_of_saved_values() -> None:
    def forward(x: Array, weight: Array, eps: float) -> tuple[Array, Any]:
        return rms_norm(x, weight, eps), {"x": x, "weight": weight, "eps": eps}

    def backward(dy: Array, saved: Any) -> tuple[Array, Array]:
        return gradients(dy, **saved)

    replaced = replacer(keeps_calls=True)
    run, back = replaced.wrap(forward), replaced.wrap(backward)
    kept = [run(x, WEIGHT, 1e-3)[1] for x in (X, RESIDUAL)]
    for x, saved in zip((X, RESIDUAL), kept, strict=True):
        for got, known in zip(back(DY, saved), gradients(DY, x, WEIGHT, 1e-3), strict=True):
            np.testing.assert_allclose(got, known, rtol=1e-4, atol=1e-5)
    with pytest.raises(MatchError, match="neither x nor a result of the forward pass"):
        back(DY, {"x": X, "weight": WEIGHT, "eps": 1e-3})


def test_calls_are_kept_only_for_backward() -> None:
    for keeps_calls in (False, True):
        x = X.copy()
        kept = weakref.ref(x)
        wrapped = replacer(keeps_calls=keeps_calls).wrap(rms_norm)
        wrapped(x, WEIGHT)
        del x
        gc.collect()
        assert (kept() is not None) == keeps_calls


def test_largest_difference() -> None:
    observed = Observations()
    observed.add_difference("y", np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert observed.largest["y"] == [0.0, 2.0]
    observed.add_difference("y", np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    observed.add_difference("y", np.array([8.0]), np.array([8.25]))
    assert observed.largest["y"] == [0.5, 2.0]
    observed.add_difference("y", np.array([np.nan, np.nan]), np.array([np.nan, 3.0]))
    assert observed.largest["y"] == [np.inf, 3.0]
    observed.add_difference("dx", np.zeros(0), np.zeros(0))
    assert "dx" not in observed.largest


def test_merged_observations(tmp_path: Path) -> None:
    one = Observations(True, 3, 1, ["float32"], {"y": [1.0, 2.0]})
    other = Observations(False, 2, 0, ["float32", "float16"], {"y": [np.inf, 4.0]}, "test_a", "no")
    one.add_names(["x"], ["y"])
    other.add_names(["x", "gamma"], ["y", "dx"])
    one.write(tmp_path / "1.json")
    other.write(tmp_path / "2.json")
    together = Observations(
        True, 5, 1, ["float32", "float16"], {"y": [np.inf, 4.0]}, "test_a", "no"
    )
    together.add_names(["x", "gamma"], ["y", "dx"])
    assert Observations.read(tmp_path) == together
    assert Observations.read(tmp_path / "nothing") == Observations()
