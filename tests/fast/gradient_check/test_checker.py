"""Arguments, options, choice of the method and refusals of the checks, and the command line."""

import sys
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check.pairs import (
    FAIL,
    PAIRS,
    PASS,
    Array,
    data,
    demand,
    linear,
    tanh_backward,
)
from truenorm.gradient_check.__main__ import main
from truenorm.tools import progress


def taking_only(dtype: Any) -> Any:
    """Return a function that takes one type only, as compiled functions may."""

    def tanh(x: Array) -> Array:
        if x.dtype != dtype:
            raise TypeError(f"no loop for {x.dtype}")
        return np.tanh(x)

    return tanh


class TestArguments:
    def test_may_be_written_to(self, method: str) -> None:
        def forward(x: Array) -> Array:
            x *= x
            return x

        def backward(dy: Array, x: Array) -> Array:
            assert (x == 1.5).all()
            dx = 2 * dy * x
            x[...] = np.nan
            return dx

        x = np.full(3, 1.5)
        demand(PASS, forward, backward, x, method=method)
        np.testing.assert_array_equal(x, np.full(3, 1.5))

    def test_dy_may_be_written_to(self, method: str) -> None:
        """Otherwise a backward that clears dy would be compared with derivatives of zero."""
        for factor, verdict in ((3.0, PASS), (0.0, FAIL)):

            def backward(dy: Array, _: Array, factor: float = factor) -> Array:
                dy *= factor
                return dy

            demand(verdict, lambda x: 3 * x, backward, np.ones(3), method=method)

    def test_several_outputs(self, method: str) -> None:
        def forward(x: Array, scale: Array) -> tuple[Array, Array]:
            return np.sin(x) * scale, x[:1] ** 2

        def backward(dys: tuple[Array, Array], x: Array, scale: Array) -> tuple[Array, Array]:
            dy, dsquare = dys
            dx = dy * np.cos(x) * scale
            dx[:1] += 2 * dsquare * x[:1]
            return dx, (dy * np.sin(x)).sum()

        def first_only(dys: tuple[Array, Array], x: Array, scale: Array) -> tuple[Array, Array]:
            return backward((dys[0], 0 * dys[1]), x, scale)

        inputs = data((4,), ())
        demand(PASS, forward, backward, inputs, method=method)
        result = demand(FAIL, forward, first_only, inputs, method=method)
        assert (result.worst_input, result.worst) == (0, (0,))

    def test_no_dimensions(self, method: str) -> None:
        x = np.array(0.7)
        assert demand(PASS, np.tanh, tanh_backward, x, method=method).worst == ()
        demand(FAIL, np.tanh, lambda dy, _: dy, x, method=method)

    def test_no_elements(self, method: str) -> None:
        pair = PAIRS["linear"]
        inputs = data((0, 4), (4, 3), (3,))
        result = demand(PASS, pair.forward, pair.backward, inputs, method=method)
        assert "nothing to check" in str(result)

    def test_none_fails_where_forward_depends_on_the_input(self, method: str) -> None:
        pair = (lambda a, b: a * b, lambda dy, _, b: (dy * b, None))
        result = demand(FAIL, *pair, data((2,), (2,)), method=method)
        assert [check.verdict for check in result.inputs] == [PASS, FAIL]
        for shown in (str(result), repr(result)):
            assert "backward returned None, but forward depends on b: return its" in shown

    def test_none_passes_where_forward_does_not_depend_on_the_input(self, method: str) -> None:
        pair = (lambda a, b: a + 0 * b, lambda dy, *_: (dy, None))
        result = demand(PASS, *pair, data((2,), (2,)), method=method)
        assert "b: PASS, backward returned None, and forward does not depend" in str(result)

    def test_none_alone(self) -> None:
        demand(FAIL, np.tanh, lambda *_: [None], np.ones(3), method="central")

    @pytest.mark.parametrize("size", [3, 600])
    def test_a_gradient_of_zero(self, method: str, size: int) -> None:
        def zero(dy: Array, x: Array) -> Array:
            return 0 * dy * x

        x = np.ones(size)
        demand(PASS, lambda x: 0 * x, zero, x, method=method)
        assert demand(FAIL, lambda x: 2 * x, zero, x, method=method).error <= 1
        assert not tn.gradcheck(lambda x: 0 * x, lambda dy, _: dy, x, method=method)  # type: ignore[arg-type]

    def test_dy_differs_from_the_stream_of_the_caller(self) -> None:
        def backward(dy: Array, x: Array) -> Array:
            assert not np.isclose(dy, x).any()
            return dy

        drawn = np.random.default_rng(0).standard_normal(4)
        demand(PASS, lambda x: x, backward, drawn, seed=0, method="complex")

    def test_the_seed_decides(self) -> None:
        pair = PAIRS["layer norm"]
        inputs = data((60, 10), (10,), (10,))
        first, second, other = (
            tn.gradcheck(pair.forward, pair.backward, inputs, method="complex", seed=seed)
            for seed in (1, 1, 2)
        )
        assert first == second != other


class TestNarrowTypes:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32])
    def test_pass_and_fail_by_default(self, dtype: Any, method: str) -> None:
        x = np.linspace(-1, 1, 9, dtype=dtype)
        demand(PASS, np.tanh, tanh_backward, x, method=method)
        demand(FAIL, np.tanh, lambda dy, x: dy * (1 - np.tanh(x)), x, method=method)

    def test_the_tolerance_follows_the_gradients(self) -> None:
        tolerances = [
            tn.gradcheck(np.tanh, tanh_backward, np.ones(3, dtype), method="complex").tol
            for dtype in (np.float64, np.float32, np.float16)
        ]
        assert tolerances == [1e-12, 1e-12 * 2.0**29, 0.02]

    def test_each_gradient_has_its_own_tolerance(self, method: str) -> None:
        """A float32 gradient does not relax the tolerance of a float64 gradient."""
        x = np.linspace(1, 2, 5)
        inputs = [x, x.astype(np.float32)]
        for off, verdict in ((0.0, PASS), (1e-4, FAIL)):

            def backward(dy: Array, x: Array, weight: Array, off: float = off) -> Any:
                return (1 + off) * dy * weight, (dy * x).astype(np.float32)

            result = demand(verdict, lambda x, weight: x * weight, backward, inputs, method=method)
            tolerances = [check.tol for check in result.inputs]
            assert tolerances[1] > 1e4 * tolerances[0] or method == "central"
        assert result.worst_input == 0

    def test_forward_that_takes_float32_alone(self) -> None:
        x = np.linspace(-1, 1, 9, dtype=np.float32)
        result = demand(PASS, taking_only(np.float32), tanh_backward, x, tol=0.01)
        assert result.method == "central"
        demand(FAIL, taking_only(np.float32), lambda dy, _: dy, x)


class TestMethods:
    def test_auto_takes_the_first_that_works(self) -> None:
        pytest.importorskip("flint")
        analytic = tn.gradcheck(np.tanh, tanh_backward, data((3,)))
        assert (analytic.method, "not" in analytic.why) == ("jet", False)
        twice = tn.gradcheck(np.sinh, lambda dy, x: dy * np.cosh(x), data((3,)))
        assert twice.method == "complex"
        assert "not jet, since forward cannot be run on arrays of objects" in twice.why

    def test_auto_falls_back_to_central(self) -> None:
        result = demand(PASS, taking_only(np.float64), tanh_backward, data((3,)))
        assert result.method == "central"
        for reason in [
            "not jet, since ",
            "not complex, since forward cannot take complex arrays (TypeError: no loop for ",
        ]:
            assert reason in result.why
            assert reason in str(result)

    def test_requested_method_that_does_not_apply(self) -> None:
        with pytest.raises(ValueError, match=r"no loop for complex128.*Pass method='auto'"):
            tn.gradcheck(taking_only(np.float64), tanh_backward, data((3,)), method="complex")

    @pytest.mark.usefixtures("no_flint")
    def test_without_flint(self) -> None:
        result = tn.gradcheck(np.tanh, tanh_backward, data((3,)))
        assert result.method == "complex"
        assert "pip install 'truenorm[verify]'" in result.why

    def test_error_is_relative_to_each_element(self, method: str) -> None:
        factors = np.array([1.0, 1e-9])
        off = np.array([1, 1 + 1e-3])
        pair = (lambda x: factors * x, lambda dy, _: dy * factors * off)
        demand(FAIL, *pair, data((2,)), method=method)

    @pytest.mark.parametrize("size", [61, 601])
    def test_a_gradient_doubled_where_it_is_small(self, method: str, size: int) -> None:
        """exp(15) is 3e6: relative to that, all errors below 0 are less than 1e-6."""

        def doubled(dy: Array, x: Array) -> Array:
            return dy * np.exp(x) * np.where(x < 0, 2, 1)

        x = np.linspace(-15, 15, size)
        demand(PASS, np.exp, lambda dy, x: dy * np.exp(x), x, method=method)
        demand(FAIL, np.exp, doubled, x, method=method)


def test_the_pass_that_loses_digits_is_named() -> None:
    """Backward computes the variance in one pass, where the mean is large."""

    def forward(x: Array) -> Array:
        c = x - x.mean()
        return np.asarray(c / np.sqrt((c * c).mean() + 1e-5))

    def one_pass(dy: Array, x: Array) -> Array:
        mean = x.mean()
        r = 1 / np.sqrt((x * x).mean() - mean * mean + 1e-5)
        xhat = (x - mean) * r
        return np.asarray(r * (dy - dy.mean() - xhat * (dy * xhat).mean()))

    (x,) = data((9,))
    result = tn.gradcheck(forward, one_pass, [x + 1e6])
    assert result.advice.endswith("a backward that loses fewer digits.")


class TestProjections:
    def test_dot_test_finds_a_transposed_weight_gradient(self, method: Any) -> None:
        def transposed(dy: Array, x: Array, weight: Array, _: Array) -> tuple[Array, ...]:
            return dy @ weight.T, (x.T @ dy).T, dy.sum(axis=0)

        inputs = data((3, 4), (4, 4), (4,))
        assert tn.dot_test(linear, PAIRS["linear"].backward, inputs, method=method)
        result = tn.dot_test(linear, transposed, inputs, method=method)
        assert (result.verdict, result.worst_input, result.worst) == (FAIL, 1, None)
        assert str(result).count("random projections") == 3
        assert str(result).count("projections locate no element") == 1

    def test_large_inputs_are_projected(self, method: str) -> None:
        calls = 0

        def forward(x: Array) -> Array:
            nonlocal calls
            calls += 1
            return np.tanh(x)

        def wrong(dy: Array, x: Array) -> Array:
            dx = tanh_backward(dy, x)
            dx[-1] += 0.01
            return dx

        inputs = data((600,))
        result = demand(PASS, forward, tanh_backward, inputs, method=method, probes=2)
        assert (result.inputs[0].checked, result.inputs[0].size) == (0, 600)
        assert calls < 1200  # element by element, it would be some hundred for each of 600
        demand(FAIL, forward, wrong, inputs, method=method)


@pytest.mark.parametrize(("check", "done"), [(tn.gradcheck, 12), (tn.dot_test, 2)])
def test_progress(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, check: Any, done: int
) -> None:
    """The progress counts elements or projections."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    assert check(lambda x: np.tanh(x), tanh_backward, np.ones(24), method="complex")
    assert f"gradient of x [{'#' * 12}{'.' * 12}] {done}/" in capsys.readouterr().err


CHECKS = [tn.gradcheck, tn.dot_test, tn.taylor_test]
ONES = np.ones(2)


def identity(x: Array) -> Array:
    return x


def identity_backward(dy: Array, _: Array) -> tuple[Array]:
    return (dy,)


NOT_APPLICABLE: dict[str, tuple[Any, Any, Any, str]] = {
    "integers": (identity, identity_backward, [np.arange(3)],
        r"x is of type int64.*\.astype\(float\)"),
    "indices": (lambda x, i: x[i], lambda dy, *_: (dy, None), [np.ones(3), np.array([0, 2, 1])],
        r"i is of type int64.*indices.*leave it out of the inputs.*lambda x: forward\(x, i\)"),
    "complex numbers": (identity, identity_backward, [np.ones(2, complex)],
        "^x is of type complex128: inputs must be real floating-point arrays"),
    "an input that is not finite":
        (lambda x1, x2: x1 * x2, identity_backward, [np.ones(1), np.full(1, np.nan)],
        "x2 has a non-finite element"),
    "no inputs": (identity, identity_backward, None,
        "inputs must be an array, or a list of arrays.*got NoneType"),
    "numbers instead of arrays":
        (identity, identity_backward, [1.0, 2.0],
        r"forward takes .*x.* but is called with 2 arguments: pass a list of inputs"),
    "forward returns what it saved":
        (lambda x: (x, {"saved": x}), identity_backward, ONES,
        "forward returned a tuple whose element 1 is a dict: return y"),
    "forward returns nothing": (lambda _: None, identity_backward, ONES, "forward returned None"),
    "forward returns integers":
        (lambda x: x.astype(int), identity_backward, ONES,
        "forward returned an array of type int64"),
    "forward is None": (None, identity_backward, ONES, "forward must be a function; got None"),
    "backward is None": (identity, None, ONES, "backward must be a function; got None"),
    "backward takes dy alone":
        (identity, lambda dy: dy, ONES,
        r"backward takes \(dy\) but is called with 2 arguments: write it as backward\(dy, x\)"),
    "backward returns nothing":
        (identity, lambda *_: None, ONES,
        "backward returned None where a tuple of 1 was expected"),
    "backward returns names":
        (identity, lambda dy, _: {"x": dy}, ONES, "backward returned a dict where a tuple of 1"),
    "too few gradients": (np.multiply, lambda dy, a, b: (dy * a * b,), [ONES, ONES],
        "backward returned 1 gradients for 2 inputs"),
    "one array for several gradients":
        (np.multiply, lambda dy, a, b: dy * a * b, [ONES, ONES],
        "returned an array where a tuple of 2 was expected"),
    "a gradient of another shape":
        (identity, lambda dy, x: ((dy * x).sum(),), ONES, r"the gradient of x has shape \(\) but"),
    "a gradient that is not real":
        (identity, lambda dy, _: (dy + 0j,), ONES, "the gradient of x is of type complex128"),
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", NOT_APPLICABLE)
def test_refusals(name: str, check: Any) -> None:
    forward, backward, inputs, message = NOT_APPLICABLE[name]
    with pytest.raises((TypeError, ValueError), match=message):
        check(forward, backward, inputs)


@pytest.mark.parametrize("check", CHECKS[:2])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"method": "forward"},
            "method must be one of auto, jet, complex, central; got 'forward'",
        ),
        ({"probes": 0}, "probes must be at least 1, got 0"),
        ({"probes": 1.5}, "probes must be a whole number; got 1.5"),
        ({"seed": "a"}, "seed must be a whole number; got 'a'"),
        ({"tol": "a"}, "tol must be a positive number; got 'a'"),
        ({"tol": 0.0}, "tol must be a positive number, got 0.0"),
        ({"tol": float("nan")}, "tol must be a positive number, got nan"),
    ],
)
def test_wrong_options(check: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        check(identity, identity_backward, [ONES], **options)


@pytest.mark.parametrize("check", CHECKS[:2])
def test_inputs_without_any_element(check: Any) -> None:
    """A check that compares nothing must not pass."""
    with pytest.raises(ValueError, match=r"at least one element; got a of shape \(0,\), b of"):
        check(lambda a, b: a * b, lambda dy, a, b: (dy * b, dy * a), [np.zeros(0), np.zeros(0)])


@pytest.mark.parametrize("check", CHECKS)
def test_one_array_as_inputs_and_gradient(check: Any) -> None:
    assert check(lambda x: x**2, lambda dy, x: 2 * dy * x, np.array([[0.5, 1.5]]))


def test_inputs_have_the_names_of_forward() -> None:
    def forward(x: Array, weight: Array, *, scale: float = 2.0) -> Array:
        return scale * x * weight

    def backward(dy: Array, x: Array, weight: Array) -> tuple[Array, Array]:
        return 2 * dy * weight, (2 + np.arange(2.0)) * dy * x

    result = tn.gradcheck(forward, backward, [ONES, ONES])
    assert [each.name for each in result.inputs] == ["x", "weight"]
    assert "  weight: FAIL, " in str(result)
    assert "FAIL: gradient of weight at [1]: " in repr(result)
    unnamed = tn.gradcheck(lambda *inputs: inputs[0], lambda dy, *_: (dy,), [ONES])
    assert "  input 0: PASS" in str(unnamed)


def exit_code(arguments: list[str]) -> object:
    """Run ``python -m truenorm.gradient_check``."""
    with pytest.raises(SystemExit) as ending:
        main(arguments)
    return ending.value.code


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ("", ["dx", "dgamma", "dbeta"]),
        ("--operation rms_norm --shape 3 5 --offset 2", ["dx", "dgamma"]),
    ],
)
def test_command_prints_the_error_of_each_gradient(
    capsys: pytest.CaptureFixture[str], arguments: str, names: list[str]
) -> None:
    assert exit_code(arguments.split()) == 0
    *lines, verdict, _ = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert all("error" in line and "floor" in line for line in lines)
    assert verdict == "PASS"


def test_command_exit_code_unless_pass(capsys: pytest.CaptureFixture[str]) -> None:
    """The check is inconclusive if forward loses its digits."""
    hard = "--shape 2 9 --offset 1e8 --sigma 1e-3 --method central"
    assert exit_code(hard.split()) == 1
    assert "INCONCLUSIVE" in capsys.readouterr().out
