"""The Taylor test shows how large the error of a gradient is."""

import math
from functools import partial

import numpy as np
import pytest

import truenorm as tn
from gradient_check.pairs import PAIRS, Array, data


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
        found = tn.taylor_test(pair.forward, pair.backward, pair.inputs)
        assert found.exact
        assert found
        assert abs(found.order - 2) <= 0.1
        assert found.level <= 1e-15

    def test_an_error_of_1e_6_is_read_off(self) -> None:
        """R is h times the error and h**2 times the curvature: one shows, then the other."""
        found = tn.taylor_test(np.tanh, partial(tanh_off_by, 1e-6), data((8,)))
        assert 1e-7 <= found.level <= 1.01e-6
        assert abs(found.orders[0] - 2) <= 0.1
        assert all(abs(order - 1) <= 1e-3 for order in found.orders[-6:])

    def test_a_gross_error(self) -> None:
        found = tn.taylor_test(np.tanh, partial(tanh_off_by, 1.0), data((8,)))
        assert not found
        assert abs(found.order - 1) <= 0.1

    def test_a_linear_function_has_no_remainder(self) -> None:
        assert tn.taylor_test(lambda x: x / 3, lambda dy, _: dy / 3, data((8,)))
        assert tn.taylor_test(lambda x: 2 * x, lambda dy, _: 2 * dy, [np.ones(1)])
        assert not tn.taylor_test(lambda x: x / 3, lambda dy, _: dy / 2, data((8,)))

    def test_an_input_without_a_gradient_stays(self) -> None:
        def backward(dy: Array, x: Array, scale: Array) -> tuple[Array, None]:
            return right(dy * scale, x), None

        found = tn.taylor_test(lambda x, s: np.tanh(x) * s, backward, data((8,), (8,)))
        assert found
        assert found.level <= 1e-15

    def test_a_forward_that_takes_no_jets(self) -> None:
        found = tn.taylor_test(lambda x: np.tanh(x.astype(np.float64)), right, data((8,)))
        assert not found.exact
        assert found


@pytest.mark.usefixtures("no_flint")
class TestInFloat64:
    def test_the_level_is_that_of_rounding(self) -> None:
        """At best h**2 = u/h: a third of the digits is lost."""
        found = tn.taylor_test(np.tanh, right, data((8,)))
        assert not found.exact
        assert found
        assert 1e-13 <= found.level <= 1e-6
        assert "in float64" in str(found)

    def test_an_error_of_1e_3(self) -> None:
        found = tn.taylor_test(np.tanh, partial(tanh_off_by, 1e-3), data((8,)))
        assert 1e-4 <= found.level <= 1.1e-3

    def test_several_outputs_of_several_inputs(self) -> None:
        def backward(dys: tuple[Array, Array], x: Array, y: Array) -> tuple[Array, Array]:
            return dys[0] * y + dys[1] * np.exp(x), dys[0] * x

        inputs = [*data((4,)), np.array([1, 2, 3, 5], np.float32)]
        assert tn.taylor_test(lambda x, y: (x * y, np.exp(x)), backward, inputs)

    def test_no_elements(self) -> None:
        found = tn.taylor_test(np.tanh, right, [np.zeros(0)])
        assert found.remainders == (0,) * len(found.steps)
        assert math.isinf(found.order)


def test_the_seed_decides() -> None:
    first, second, other = (
        tn.taylor_test(np.tanh, right, data((8,)), seed=seed) for seed in (1, 1, 2)
    )
    assert first == second != other


def test_the_report_has_a_line_for_each_step() -> None:
    found = tn.taylor_test(np.tanh, right, data((8,)))
    assert len(str(found).splitlines()) == 1 + len(found.steps) == 1 + len(found.remainders)
    assert f"order {found.order:.2f}" in str(found)
