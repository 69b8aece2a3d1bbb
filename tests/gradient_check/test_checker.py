"""A check must find the mistake, and only the mistake."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from truenorm import textbook
from truenorm.gradient_check import GradientCheck
from truenorm.gradient_check.central_differences import first_step

FloatArray = NDArray[np.floating]
Backward = Callable[..., Sequence[FloatArray | None]]


def layer_norm(x: FloatArray, gamma: FloatArray, beta: FloatArray) -> FloatArray:
    return textbook.forward(x, gamma, beta)[0]


def layer_norm_gradients(
    dy: FloatArray, x: FloatArray, gamma: FloatArray, beta: FloatArray
) -> tuple[FloatArray, ...]:
    return textbook.backward(dy, textbook.forward(x, gamma, beta)[1])


def data(*shape: int, offset: float = 0.0, sigma: float = 1.0) -> list[FloatArray]:
    random = np.random.default_rng(0)
    x = offset + sigma * random.standard_normal(shape)
    return [x, *random.standard_normal((2, shape[-1]))]


def errors(result: GradientCheck) -> list[float]:
    return [found.error for found in result.inputs if found is not None]


class TestLayerNorm:
    def test_every_element(self) -> None:
        result = tn.gradcheck(layer_norm, layer_norm_gradients, data(4, 8, 16), tol=1e-9)
        assert result, str(result)
        assert [found and found.checked for found in result.inputs] == [512, 16, 16]

    def test_a_sample_of_many(self) -> None:
        inputs = data(2, 128, 1024)
        result = tn.gradcheck(layer_norm, layer_norm_gradients, inputs, tol=1e-9, samples=64)
        assert result, str(result)
        assert [found and found.checked for found in result.inputs] == [64, 64, 64]

    @pytest.mark.parametrize(
        "row_scales",
        [[1e-3, 1e3], [1.0, 0.0, 1.0], [1.0, 1e4, 1e-2]],
        ids=["small among large", "a zero row", "mixed"],
    )
    def test_rows_of_different_scale(self, row_scales: list[float]) -> None:
        """One step cannot serve all rows; a right gradient must pass all the same."""
        x, gamma, beta = data(len(row_scales), 17)
        result = tn.gradcheck(
            layer_norm, layer_norm_gradients, [x * np.array(row_scales)[:, None], gamma, beta]
        )
        assert result, str(result)

    @pytest.mark.parametrize("sigma", [1e-3, 1.0, 1e6])
    def test_scales(self, sigma: float) -> None:
        inputs = data(4, 17, sigma=sigma)
        assert tn.gradcheck(layer_norm, layer_norm_gradients, inputs, tol=1e-9)

    def test_one_element_a_row_and_no_rows(self) -> None:
        assert tn.gradcheck(layer_norm, layer_norm_gradients, data(4, 1), tol=1e-9)
        result = tn.gradcheck(layer_norm, layer_norm_gradients, data(0, 4), tol=1e-9)
        assert result
        assert "nothing to check" in str(result)


class TestWhereDifferencesLoseTheirDigits:
    """x around 1e8 with sigma 1e-3: the check fails, and it is not the gradient's fault.

    Moving one element by h moves the mean by h/D, 3e-8 here. But the mean is a float64 near
    1e8, and those lie 1.5e-8 apart: it moves by one step or by two, never by the right
    amount. No tolerance makes such a difference meaningful, so none is loosened here. The
    forward pass is what must be better: y does not change when 1e8 is taken from x (D23),
    which is exact on this data, and differences of that forward pass judge again.
    """

    OFFSET = 1e8

    @pytest.fixture
    def inputs(self) -> list[FloatArray]:
        return data(4, 17, offset=self.OFFSET, sigma=1e-3)

    def shifted(self, x: FloatArray, gamma: FloatArray, beta: FloatArray) -> FloatArray:
        return layer_norm(x - self.OFFSET, gamma, beta)

    def shifted_gradients(
        self, dy: FloatArray, x: FloatArray, *rest: FloatArray
    ) -> Sequence[FloatArray]:
        return layer_norm_gradients(dy, x - self.OFFSET, *rest)

    def test_differences_of_the_textbook_forward_are_worthless(
        self, inputs: list[FloatArray]
    ) -> None:
        dx_error, dgamma_error, dbeta_error = errors(
            tn.gradcheck(layer_norm, layer_norm_gradients, inputs, tol=1e-9)
        )
        assert dx_error > 1e-3
        assert max(dgamma_error, dbeta_error) <= 1e-9  # they do not move the mean

    def test_because_the_mean_moves_by_about_one_ulp(self, inputs: list[FloatArray]) -> None:
        x = inputs[0]
        movement_of_the_mean = first_step(x) / x.shape[-1]
        assert movement_of_the_mean < 4 * np.spacing(self.OFFSET)

    def test_a_shifted_forward_pass_is_good_enough(self, inputs: list[FloatArray]) -> None:
        assert tn.gradcheck(self.shifted, self.shifted_gradients, inputs, tol=1e-9)

    def test_and_shows_the_true_error_of_the_textbook_backward(
        self, inputs: list[FloatArray]
    ) -> None:
        """Its xhat carries the rounding of the mean: half an ulp over sigma, 1e-5."""
        result = tn.gradcheck(self.shifted, layer_norm_gradients, inputs)
        assert 1e-9 < errors(result)[0] < 16 * np.spacing(self.OFFSET) / 1e-3


class TestFindsMistakes:
    @staticmethod
    def wrong(name: str) -> Backward:
        def backward(
            dy: FloatArray, x: FloatArray, gamma: FloatArray, beta: FloatArray
        ) -> Sequence[FloatArray]:
            _, saved = textbook.forward(x, gamma, beta)
            dx, dgamma, dbeta = textbook.backward(dy, saved)
            xhat, rstd, _ = saved
            g = gamma * dy
            slope = (g * xhat).mean(axis=-1, keepdims=True)
            mean_g = g.mean(axis=-1, keepdims=True)
            rows = x.size // x.shape[-1]
            here = (np.arange(x.size) == 7).reshape(x.shape)
            mistakes = {
                "mean(g) dropped": (rstd * (g - xhat * slope), dgamma, dbeta),
                "mean(g*xhat) dropped": (rstd * (g - mean_g), dgamma, dbeta),
                "mean(g) subtracted twice": (dx - rstd * mean_g, dgamma, dbeta),
                "gamma forgotten": (textbook.backward(dy / gamma, saved)[0], dgamma, dbeta),
                "sign": (-dx, dgamma, dbeta),
                "one element": (np.where(here, dx + 1e-5, dx), dgamma, dbeta),
                "NaN": (np.where(here, np.nan, dx), dgamma, dbeta),
                "dgamma from x": (dx, (dy * x).sum(axis=(0, 1)), dbeta),
                "dbeta averaged": (dx, dgamma, dbeta / rows),
                "zeros": (0 * dx, 0 * dgamma, 0 * dbeta),
            }  # fmt: skip
            return mistakes[name]

        return backward

    @pytest.mark.parametrize(
        ("name", "at_fault"),
        [
            ("mean(g) dropped", [0]),
            ("mean(g*xhat) dropped", [0]),
            ("mean(g) subtracted twice", [0]),
            ("gamma forgotten", [0]),
            ("sign", [0]),
            ("one element", [0]),
            ("NaN", [0]),
            ("dgamma from x", [1]),
            ("dbeta averaged", [2]),
            ("zeros", [0, 1, 2]),
        ],
    )
    def test_mistake_is_found_in_the_right_input(self, name: str, at_fault: list[int]) -> None:
        result = tn.gradcheck(layer_norm, self.wrong(name), data(2, 3, 8))
        assert not result
        failing = [
            which
            for which, found in enumerate(result.inputs)
            if found is not None and not found.error <= result.tol
        ]
        assert failing == at_fault

    @pytest.mark.parametrize("name", ["one element", "NaN"])
    def test_the_element_is_named(self, name: str) -> None:
        found = tn.gradcheck(layer_norm, self.wrong(name), data(2, 3, 8)).inputs[0]
        assert found is not None
        assert found.worst == (0, 0, 7)

    def test_a_correct_gradient_of_zero_passes(self) -> None:
        result = tn.gradcheck(lambda x: 0 * x, lambda dy, x: (0 * dy * x,), [np.ones(3)])
        assert errors(result) == [0.0]


class TestAnyPair:
    def test_float32(self) -> None:
        x = np.linspace(-2, 2, 9, dtype=np.float32)
        assert tn.gradcheck(np.tanh, lambda dy, x: (dy / np.cosh(x) ** 2,), [x], tol=1e-4)

    def test_no_gradient_is_skipped(self) -> None:
        result = tn.gradcheck(
            lambda a, b: a * b, lambda dy, _, b: (dy * b, None), [np.ones(2)] * 2
        )
        assert result
        assert result.inputs[1] is None
        assert "skipped" in str(result)

    def test_inputs_are_left_alone_even_by_functions_that_write(self) -> None:
        def forward(x: FloatArray) -> FloatArray:
            x *= 3
            return x

        def backward(dy: FloatArray, x: FloatArray) -> Sequence[FloatArray]:
            x[...] = np.nan
            return (3 * dy,)

        x = np.ones(3)
        assert tn.gradcheck(forward, backward, [x])
        np.testing.assert_array_equal(x, np.ones(3))

    def test_the_sample_is_random(self) -> None:
        """A mistake in the last of 1000 elements is found by some seeds and not by all."""

        def backward(dy: FloatArray, x: FloatArray) -> Sequence[FloatArray]:
            return (dy * np.where(np.arange(x.size) < x.size // 2, 1, 2),)

        x = np.linspace(1, 2, 1000)
        verdicts = {
            bool(tn.gradcheck(lambda x: x, backward, [x], samples=1, seed=s)) for s in range(20)
        }
        assert verdicts == {True, False}

    def test_the_same_seed_gives_the_same_result(self) -> None:
        inputs = data(3, 100)
        first, second, other = (
            tn.gradcheck(layer_norm, layer_norm_gradients, inputs, samples=8, seed=seed)
            for seed in (1, 1, 2)
        )
        assert first == second != other

    def test_dy_is_not_what_the_caller_drew_from_the_same_seed(self) -> None:
        drawn = np.random.default_rng(0).standard_normal(4)

        def backward(dy: FloatArray, x: FloatArray) -> Sequence[FloatArray]:
            assert not np.isclose(dy, x).any()
            return (dy,)

        assert tn.gradcheck(lambda x: x, backward, [drawn], seed=0)


class TestRefused:
    def test_integers(self) -> None:
        with pytest.raises(TypeError, match=r"input 0 is of type int64.*\.astype\(float\)"):
            tn.gradcheck(lambda x: x, lambda dy, x: (dy * x,), [np.arange(3)])  # type: ignore[list-item]

    def test_non_finite_input(self) -> None:
        with pytest.raises(ValueError, match="input 1 has a non-finite element"):
            tn.gradcheck(
                layer_norm, layer_norm_gradients, [np.ones(1), np.full(1, np.nan), np.ones(1)]
            )

    def test_wrong_number_of_gradients(self) -> None:
        with pytest.raises(ValueError, match="backward returned 1 gradients for 2 inputs"):
            tn.gradcheck(lambda a, b: a * b, lambda dy, a, b: (dy * b * a,), [np.ones(2)] * 2)

    def test_wrong_shape(self) -> None:
        with pytest.raises(ValueError, match=r"the gradient of input 0 has shape \(\) but"):
            tn.gradcheck(lambda x: x, lambda dy, x: ((dy * x).sum(),), [np.ones(2)])

    def test_no_samples(self) -> None:
        with pytest.raises(ValueError, match="samples is 0"):
            tn.gradcheck(lambda x: x, lambda dy, x: (dy * x,), [np.ones(2)], samples=0)
