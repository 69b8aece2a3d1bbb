"""What a check takes, what it leaves alone, and which method it uses."""

import sys
from typing import Any, Literal

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import PAIRS, Array, data, linear
from truenorm.gradient_check import Verdict
from truenorm.tools import progress

MethodName = Literal["jet", "complex", "central"]


def tanh_backward(dy: Array, x: Array) -> tuple[Array]:
    return (dy * (1 - np.tanh(x) ** 2),)


def only_float64(x: Array) -> Array:
    """Stand for a function of a compiled library."""
    if x.dtype != np.float64:
        raise TypeError(f"no loop for {x.dtype}")
    return np.tanh(x)


class TestArguments:
    def test_may_be_written_to(self, method: MethodName) -> None:
        def forward(x: Array) -> Array:
            x *= x
            return x

        def backward(dy: Array, x: Array) -> tuple[Array]:
            assert (x == 1.5).all()
            dx = 2 * dy * x
            x[...] = np.nan
            return (dx,)

        x = np.full(3, 1.5)
        assert tn.gradcheck(forward, backward, [x], method=method)
        np.testing.assert_array_equal(x, np.full(3, 1.5))

    def test_dy_may_be_written_to(self, method: MethodName) -> None:
        """Otherwise a backward that clears it would be held against derivatives of zero."""

        def right(dy: Array, _: Array) -> tuple[Array]:
            dy *= 3
            return (dy,)

        def wrong(dy: Array, _: Array) -> tuple[Array]:
            dy[...] = 0
            return (dy,)

        assert tn.gradcheck(lambda x: 3 * x, right, [np.ones(3)], method=method)
        assert not tn.gradcheck(lambda x: 3 * x, wrong, [np.ones(3)], method=method)

    def test_several_outputs(self, method: MethodName) -> None:
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
        assert tn.gradcheck(forward, backward, inputs, method=method)
        result = tn.gradcheck(forward, first_only, inputs, method=method)
        assert (result.verdict, result.worst_input, result.worst) == (Verdict.FAIL, 0, (0,))

    def test_no_dimensions(self, method: MethodName) -> None:
        x = np.array(0.7)
        result = tn.gradcheck(np.tanh, tanh_backward, [x], method=method)
        assert result
        assert result.worst == ()
        assert not tn.gradcheck(np.tanh, lambda dy, _: (dy,), [x], method=method)

    def test_no_elements(self, method: MethodName) -> None:
        pair = PAIRS["linear"]
        inputs = data((0, 4), (4, 3), (3,))
        result = tn.gradcheck(pair.forward, pair.backward, inputs, method=method)
        assert result, str(result)
        assert "nothing to check" in str(result)

    def test_no_gradient_is_skipped(self, method: MethodName) -> None:
        def backward(dy: Array, _: Array, b: Array) -> tuple[Array, None]:
            return dy * b, None

        result = tn.gradcheck(lambda a, b: a * b, backward, data((2,), (2,)), method=method)
        assert result
        assert result.inputs[1] is None
        assert "input 1: skipped" in str(result)

    def test_a_gradient_of_zero(self, method: MethodName) -> None:
        def backward(dy: Array, x: Array) -> tuple[Array]:
            return (0 * dy * x,)

        assert tn.gradcheck(lambda x: 0 * x, backward, [np.ones(3)], method=method)
        large = tn.gradcheck(lambda x: 0 * x, backward, [np.ones(600)], method=method)
        assert large
        wrong = tn.gradcheck(lambda x: 2 * x, backward, [np.ones(600)], method=method)
        assert wrong.verdict is Verdict.FAIL
        assert not tn.gradcheck(lambda x: 0 * x, lambda dy, _: (dy,), [np.ones(3)], method=method)

    def test_dy_is_not_what_the_caller_drew_from_the_same_seed(self) -> None:
        drawn = np.random.default_rng(0).standard_normal(4)

        def backward(dy: Array, x: Array) -> tuple[Array]:
            assert not np.isclose(dy, x).any()
            return (dy,)

        assert tn.gradcheck(lambda x: x, backward, [drawn], seed=0, method="complex")

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
    def test_pass_and_fail_by_default(self, dtype: Any, method: MethodName) -> None:
        x = np.linspace(-1, 1, 9, dtype=dtype)
        result = tn.gradcheck(np.tanh, tanh_backward, [x], method=method)
        assert result, str(result)

        def wrong(dy: Array, x: Array) -> tuple[Array]:
            return (dy * (1 - np.tanh(x)),)

        result = tn.gradcheck(np.tanh, wrong, [x], method=method)
        assert result.verdict is Verdict.FAIL

    def test_the_tolerance_follows_the_gradients(self) -> None:
        tolerances = [
            tn.gradcheck(np.tanh, tanh_backward, [np.ones(3, dtype)], method="complex").tol
            for dtype in (np.float64, np.float32, np.float16)
        ]
        assert tolerances == [1e-12, 1e-12 * 2.0**29, 0.02]

    def test_forward_that_takes_float32_alone(self) -> None:
        def forward(x: Array) -> Array:
            if x.dtype != np.float32:
                raise TypeError("float32 only")
            return np.tanh(x)

        x = np.linspace(-1, 1, 9, dtype=np.float32)
        result = tn.gradcheck(forward, tanh_backward, [x], tol=0.01)
        assert result.method == "central"
        assert result, str(result)
        assert tn.gradcheck(forward, lambda dy, _: (dy,), [x]).verdict is Verdict.FAIL


class TestMethods:
    def test_auto_takes_the_first_that_works(self) -> None:
        pytest.importorskip("flint")
        analytic = tn.gradcheck(np.tanh, tanh_backward, data((3,)))
        assert (analytic.method, "not" in analytic.why) == ("jet", False)
        twice = tn.gradcheck(np.sinh, lambda dy, x: (dy * np.cosh(x),), data((3,)))
        assert twice.method == "complex"
        assert "not jet, since forward cannot be run on arrays of objects" in twice.why

    def test_auto_falls_back_to_central_and_says_why(self) -> None:
        result = tn.gradcheck(only_float64, tanh_backward, data((3,)))
        assert result
        assert result.method == "central"
        for reason in [
            "not jet, since ",
            "not complex, since forward cannot take complex arrays (TypeError: no loop for ",
        ]:
            assert reason in result.why
            assert reason in str(result)

    def test_a_method_that_was_asked_for_and_cannot(self) -> None:
        with pytest.raises(ValueError, match=r"no loop for complex128.*Pass method='auto'"):
            tn.gradcheck(only_float64, tanh_backward, data((3,)), method="complex")

    def test_without_flint(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "flint", None)
        result = tn.gradcheck(np.tanh, tanh_backward, data((3,)))
        assert result.method == "complex"
        assert "pip install truenorm[verify]" in result.why

    def test_each_element_against_its_own_size(self, method: MethodName) -> None:
        """Where a method can: a difference sees only what is not lost beside the largest."""
        factors = np.array([1.0, 1e-9])

        def wrong(dy: Array, _: Array) -> tuple[Array]:
            return (dy * factors * (1 + np.array([0, 1e-3])),)

        result = tn.gradcheck(lambda x: factors * x, wrong, data((2,)), method=method)
        assert result.verdict is (Verdict.PASS if method == "central" else Verdict.FAIL)


class TestProjections:
    def test_dot_test_finds_a_transposed_weight_gradient(self, method: MethodName) -> None:
        def transposed(dy: Array, x: Array, weight: Array, _: Array) -> tuple[Array, ...]:
            return dy @ weight.T, (x.T @ dy).T, dy.sum(axis=0)

        inputs = data((3, 4), (4, 4), (4,))
        assert tn.dot_test(linear, PAIRS["linear"].backward, inputs, method=method)
        result = tn.dot_test(linear, transposed, inputs, method=method)
        assert (result.verdict, result.worst_input, result.worst) == (Verdict.FAIL, 1, None)
        assert str(result).count("random projections") == 3

    def test_large_inputs_are_projected(self, method: MethodName) -> None:
        calls = 0

        def forward(x: Array) -> Array:
            nonlocal calls
            calls += 1
            return np.tanh(x)

        def wrong(dy: Array, x: Array) -> tuple[Array]:
            dx = tanh_backward(dy, x)[0]
            dx[-1] += 0.01
            return (dx,)

        inputs = data((600,))
        result = tn.gradcheck(forward, tanh_backward, inputs, method=method, probes=2)
        assert result, str(result)
        assert result.inputs[0] is not None
        assert (result.inputs[0].checked, result.inputs[0].size) == (0, 600)
        assert calls < 1200  # element by element, it would be some hundred for each of 600
        assert tn.gradcheck(forward, wrong, inputs, method=method).verdict is Verdict.FAIL


@pytest.mark.parametrize("probes", [1, 4])
def test_a_long_check_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, probes: int
) -> None:
    """Element by element, and projection by projection."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BETWEEN", 0.0)
    check = tn.gradcheck if probes == 1 else tn.dot_test
    assert check(lambda x: np.tanh(x), tanh_backward, np.ones(24), method="complex", probes=probes)
    assert f"gradient of x [{'#' * 12}{'.' * 12}] {12 if probes == 1 else 2}/" in (
        capsys.readouterr().err
    )
