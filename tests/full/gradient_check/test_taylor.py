"""The Taylor test measures the error of a gradient."""

import math
from functools import partial

import numpy as np
import pytest

import truenorm as tn
from shared.gradient_check.pairs import PAIRS, Array, data


def tanh_off_by(error: float, dy: Array, x: Array) -> Array:
    return np.asarray(dy * (1 - np.tanh(x) ** 2) * (1 + error))


right = partial(tanh_off_by, 0.0)


class TestWithJets:
    @pytest.fixture(autouse=True)
    def _flint(self) -> None:
        pytest.importorskip("flint")

    @pytest.mark.parametrize("name", [name for name in PAIRS if name != "weighted L1"])
    def test_right_pairs(self, name: str) -> None:
        pair = PAIRS[name]
        result = tn.taylor_test(pair.forward, pair.backward, pair.inputs)
        assert result.exact
        assert result
        assert abs(result.order - 2) <= 0.1
        assert result.level <= 1e-15

    def test_level_is_the_error(self) -> None:
        """R is h times the error plus h**2 times the curvature."""
        result = tn.taylor_test(np.tanh, partial(tanh_off_by, 1e-6), data((8,)))
        assert 1e-7 <= result.level <= 1.01e-6
        assert abs(result.orders[0] - 2) <= 0.1
        assert all(abs(order - 1) <= 1e-3 for order in result.orders[-6:])

    def test_a_linear_function_has_no_remainder(self) -> None:
        assert tn.taylor_test(lambda x: x / 3, lambda dy, _: dy / 3, data((8,)))
        assert tn.taylor_test(lambda x: 2 * x, lambda dy, _: 2 * dy, [np.ones(1)])
        assert not tn.taylor_test(lambda x: x / 3, lambda dy, _: dy / 2, data((8,)))

    def test_input_without_a_gradient_does_not_move(self) -> None:
        def backward(dy: Array, x: Array, scale: Array) -> tuple[Array, None]:
            return right(dy * scale, x), None

        result = tn.taylor_test(lambda x, s: np.tanh(x) * s, backward, data((8,), (8,)))
        assert result
        assert result.level <= 1e-15

    def test_a_forward_that_takes_no_jets(self) -> None:
        result = tn.taylor_test(lambda x: np.tanh(x.astype(np.float64)), right, data((8,)))
        assert not result.exact
        assert result


@pytest.mark.usefixtures("no_flint")
class TestInFloat64:
    def test_level_is_that_of_rounding(self) -> None:
        """At best h**2 = u/h: a third of the digits is lost."""
        result = tn.taylor_test(np.tanh, right, data((8,)))
        assert not result.exact
        assert result
        assert 1e-13 <= result.level <= 1e-6
        assert "in float64" in str(result)

    def test_an_error_of_1e_3(self) -> None:
        result = tn.taylor_test(np.tanh, partial(tanh_off_by, 1e-3), data((8,)))
        assert 1e-4 <= result.level <= 1.1e-3

    def test_several_outputs_of_several_inputs(self) -> None:
        def backward(dys: tuple[Array, Array], x: Array, y: Array) -> tuple[Array, Array]:
            return dys[0] * y + dys[1] * np.exp(x), dys[0] * x

        inputs = [*data((4,)), np.array([1, 2, 3, 5], np.float32)]
        assert tn.taylor_test(lambda x, y: (x * y, np.exp(x)), backward, inputs)

    def test_no_elements(self) -> None:
        result = tn.taylor_test(np.tanh, right, [np.zeros(0)])
        assert result.remainders == (0,) * len(result.steps)
        assert math.isinf(result.order)


def test_seed_determines_the_result() -> None:
    first, second, other = (
        tn.taylor_test(np.tanh, right, data((8,)), seed=seed) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_report_has_a_line_for_each_step() -> None:
    result = tn.taylor_test(np.tanh, right, data((8,)))
    assert len(str(result).splitlines()) == 1 + len(result.steps) == 1 + len(result.remainders)
    assert f"order {result.order:.2f}" in str(result)
