"""Bounds: exact answers, tolerances, violations, and arguments that are refused."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import truenorm as tn
import truenorm.verify as tv
from truenorm.verify import bounds as bounding
from truenorm.verify.causes import Cause
from truenorm.verify.oracle import expected
from truenorm.verify.types import dtype_of

SHAPE = (3, 4, 32)


def make_arrays(shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> dict[str, Any]:
    random = np.random.default_rng(5)
    kind = dtype_of(dtype)
    rows = {name: random.normal(size=shape).astype(kind) for name in ("x", "dy")}
    columns = {name: random.normal(size=shape[-1]).astype(kind) for name in ("gamma", "beta")}
    return {**rows, **columns}


def computed(x: Any, gamma: Any, beta: Any, dy: Any) -> tuple[Any, ...]:
    y, saved = tn.layer_norm_forward(x, gamma, beta, eps=1e-5, backend="reference")
    return (y, *tn.layer_norm_backward(dy, saved, backend="reference"))


def two_passes(x: Any, gamma: Any, beta: Any, ddof: int = 0) -> Any:
    c = x - x.mean(axis=-1, keepdims=True)
    var = (c * c).sum(axis=-1, keepdims=True) / x.dtype.type(x.shape[-1] - ddof)
    return gamma * c / np.sqrt(var + x.dtype.type(1e-5)) + beta


@pytest.fixture(params=["exact", "enclosed"])
def answers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Compute answers exactly, and by enclosures, for inputs of any size."""
    if request.param == "enclosed":
        monkeypatch.setattr(bounding, "EXACT_ELEMENTS", 0)
    return str(request.param)


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_correctly_rounded_results(dtype: str) -> None:
    arrays = make_arrays(dtype=dtype)
    results = computed(**arrays)
    bound = tv.bound("layer_norm", **arrays, grade="correct")
    assert bound.results == ("y", "dx", "dgamma", "dbeta")
    bound.assert_close(results)
    for name, result in zip(bound.results, results, strict=True):
        assert bound.exact(name).dtype == result.dtype
        assert bound.exact(name).tobytes() == result.tobytes()


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("grade", ["correct", "faithful", "stable", "conditional"])
@pytest.mark.parametrize("output", [0, 1, 2, 3])
def test_one_element_beyond_its_tolerance(output: int, grade: str) -> None:
    """An element within its tolerance passes."""
    arrays = make_arrays()
    bound = tv.bound("layer_norm", **arrays, grade=grade)
    name = bound.results[output]
    near = computed(**arrays)[output].copy()
    at = (2, 3, 31)[-near.ndim :]
    room = bound.tolerance(name)[at]
    if grade != "correct":
        near[at] = np.float64(near[at]) + 0.4 * room
        bound.assert_close(**{name: near})
    near[at] = np.float64(near[at]) + 1.7 * max(room, np.spacing(np.abs(near[at])))
    with pytest.raises(AssertionError) as raised:
        bound.assert_close(**{name: near})
    text = str(raised.value)
    assert text.startswith(f"{name} is not {grade}: 1 of {near.size} elements is off\n")
    assert f"worst: {name}{list(at)} is {near[at]}, the exact answer " in text
    assert f"where {room:.3g} is allowed" in text


def test_tolerances_equal_those_of_the_judge() -> None:
    case = tv.case("float32-offset-1e4-4x67")
    exact = expected(case)
    arrays = {name: case.inputs[name] for name in ("x", "gamma", "beta", "dy")}
    for grade, power in (("stable", 0), ("conditional", 1)):
        bound = tv.bound("layer_norm", **arrays, eps=case.eps, grade=grade)
        for name in bound.results:
            assert np.array_equal(bound.tolerance(name), exact.allowed(name, power))
            assert np.array_equal(bound.exact(name), exact.wide[name])


def test_enclosures_give_the_same_tolerances(monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = make_arrays((40, 7, 9))
    few = tv.bound("layer_norm", **arrays)
    in_integers = {name: few.tolerance(name) for name in few.results}
    monkeypatch.setattr(bounding, "EXACT_ELEMENTS", 0)
    monkeypatch.setattr("truenorm.verify.norms.enclosures.BLOCK_ELEMENTS", 100)
    many = tv.bound("layer_norm", **arrays)
    for name in many.results:
        assert many.tolerance(name) == pytest.approx(in_integers[name], rel=1e-12)
        assert np.array_equal(many.exact(name), few.exact(name))


@pytest.mark.usefixtures("answers")
def test_likely_cause() -> None:
    arrays = make_arrays()
    del arrays["dy"]
    bound = tv.bound("layer_norm", **arrays)
    bound.assert_close(two_passes(**arrays))
    over = Cause("square-over-size-less-1", "")
    words = next(each.words for each in tv.LAYER_NORM.knowledge.hypotheses("y") if each == over)
    with pytest.raises(AssertionError, match=f"likely cause: {words}"):
        bound.assert_close(two_passes(**arrays, ddof=1))


def test_no_cause_if_several_would_match() -> None:
    """Zeros from overflowing squares match many hypotheses."""
    arrays = make_arrays() | {"beta": None}
    arrays["x"] = arrays["x"] * np.float32(1e30)
    with pytest.raises(AssertionError, match="y is not stable") as raised:
        tv.bound("layer_norm", **arrays).assert_close(0 * arrays["dy"])
    assert "cause" not in str(raised.value)


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_wrong_value(value: float) -> None:
    arrays = make_arrays()
    y, *_ = computed(**arrays)
    y[1, 2, 3] = value
    with pytest.raises(AssertionError, match=rf"1 of 384 .*\n.*y\[1, 2, 3\] is {value}, "):
        tv.bound("layer_norm", **arrays).assert_close(y)


def test_finite_value_in_a_non_finite_row() -> None:
    arrays = make_arrays()
    arrays["x"][1, 2, 3] = np.inf
    y, *_ = computed(**arrays)
    bound = tv.bound("layer_norm", **arrays)
    bound.assert_close(y)
    y[1, 2, 5] = 0.0
    with pytest.raises(AssertionError, match=r"y\[1, 2, 5\] is 0.0, the exact answer nan"):
        bound.assert_close(y)


@pytest.mark.parametrize("words", ["rms_norm", "add_rms_norm", "add_layer_norm,beta=false"])
def test_other_norms_and_mixed_types(words: str) -> None:
    """float64 and a cast are faithful; gamma is float32 and the rows are float16."""
    arrays = make_arrays(dtype="float16")
    x, dy = arrays["x"], arrays["dy"]
    gamma = np.linspace(0.5, 1.5, SHAPE[-1], dtype=np.float32)
    adds = words.startswith("add_")
    more = {"residual": dy[::-1], "dsum": x[::-1]} if adds else {}
    bound = tv.bound(words, x, gamma, eps=1e-3, dy=dy, **more, grade="faithful")
    total = x + more.get("residual", np.float16(0))
    rows, g = total.astype(np.float64), gamma * dy.astype(np.float64)
    centred = rows - rows.mean(-1, keepdims=True) if "layer" in words else rows
    r = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    xhat = centred * r
    mean = g.mean(-1, keepdims=True) if "layer" in words else 0.0
    dx = r * (g - mean - xhat * (g * xhat).mean(-1, keepdims=True)) + more.get("dsum", 0.0)
    results = {"y": gamma * xhat, "sum": total, "dx": dx, "dresidual": dx}
    named = {name: results[name].astype(np.float16) for name in bound.results if name in results}
    named["dgamma"] = (dy * xhat).sum(axis=(0, 1)).astype(np.float32)
    assert set(named) == set(bound.results)
    bound.assert_close(named)
    with pytest.raises(AssertionError, match="dgamma is not faithful"):
        bound.assert_close(named | {"dgamma": named["dgamma"] * np.float32(1.001)})


@pytest.mark.usefixtures("answers")
def test_single_row() -> None:
    x = make_arrays()["x"][0, 0]
    bound = tv.bound("rms_norm", x)
    y = tn.rms_norm(x, eps=1e-5)
    bound.assert_close(y)
    y[7] += 1
    with pytest.raises(AssertionError, match=r"y is not stable: 1 of 32 .*\n  worst: y\[7\] is"):
        bound.assert_close(y)


def test_absent_parameters() -> None:
    arrays = make_arrays() | {"gamma": None}
    y, dx, dgamma, dbeta = computed(**arrays)
    assert dgamma is None
    bound = tv.bound("layer_norm", **arrays)
    assert bound.results == ("y", "dx", "dbeta")
    bound.assert_close((y, dx, dgamma, dbeta))
    with pytest.raises(ValueError, match="got 'dgamma'"):
        bound.assert_close(dgamma=y)


def test_shape_and_type() -> None:
    arrays = make_arrays()
    y, *_ = computed(**arrays)
    bound = tv.bound("layer_norm", **arrays)
    with pytest.raises(AssertionError, match=r"y has the shape \(12, 32\); it should be \(3, 4"):
        bound.assert_close(y.reshape(-1, 32))
    with pytest.raises(AssertionError, match="y is float64; it should be float32"):
        bound.assert_close(y.astype(np.float64))
    with pytest.raises(AssertionError, match=r"(?s)y is float64.*dx is not stable"):
        bound.assert_close(y=y.astype(np.float64), dx=arrays["dy"])


@pytest.mark.parametrize(("changed", "message"), [
    ({"x": np.zeros((2, 3), np.int32)}, "x must be float16, .*; got int32"),
    ({"x": np.zeros((2, 0), np.float32)}, r"x must have rows .*; got shape \(2, 0\)"),
    ({"dy": np.zeros((2, 3), np.float32)}, r"dy must have .* shape of x, .*; got float32"),
    ({"gamma": np.zeros(3, np.float32)}, r"gamma must have shape \(32,\), got \(3,\)"),
    ({"residual": np.zeros(3)}, "layer_norm takes no residual"),
    ({"operation": "add_rms_norm", "beta": None}, "add_rms_norm needs residual"),
    ({"operation": "batch_norm"}, "operation must be one of layer_norm"),
    ({"grade": "wrong"}, "grade must be one of conditional, stable, .*; got 'wrong'"),
    ({"eps": -1.0}, "eps must be .*; got -1.0"),
    ({"eps": float("nan")}, "eps must be .*; got nan"),
])  # fmt: skip
def test_invalid_arguments(changed: dict[str, Any], message: str) -> None:
    arguments = {"operation": "layer_norm", **make_arrays(), **changed}
    with pytest.raises(ValueError, match=message):
        tv.bound(**arguments)


def test_invalid_results() -> None:
    arrays = make_arrays()
    y, *_ = computed(**arrays)
    forward = tv.bound("layer_norm", **{**arrays, "dy": None})
    with pytest.raises(ValueError, match="result must be one of y; got 'dx'; for others, pass dy"):
        forward.assert_close(dx=y)
    with pytest.raises(ValueError, match="expected at most the results y; got 2 results"):
        forward.assert_close((y, y))
    with pytest.raises(TypeError, match="nothing to compare"):
        forward.assert_close()
    arrays["x"][0, 0, 0] = np.nan
    large = {**arrays, "x": np.tile(arrays["x"], (40, 1, 1)), "dy": None}
    with pytest.raises(ValueError, match="must have finite numbers"):
        tv.bound("layer_norm", **large)


@pytest.mark.slow(reason="large arrays are measured")
def test_memory_is_independent_of_rows() -> None:
    peaks = []
    for rows in (500, 4000):
        arrays = make_arrays((rows, 128))
        results = computed(**arrays)
        bound = tv.bound("layer_norm", **arrays)
        tracemalloc.start()
        bound.assert_close(results)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
