"""The textbook form: exact fractions, corner cases, saved arrays and errors."""

import gc
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.exact_row import ExactRow, fractions
from truenorm import textbook

FloatArray = NDArray[np.float64]

U = 2.0**-53


def layer_norm_inputs(*shape: int, seed: int = 0) -> tuple[FloatArray, ...]:
    """Return x, gamma, beta and dy, all read-only: a function that writes to them raises."""
    random = np.random.default_rng(seed)
    x, dy = random.standard_normal((2, *shape))
    gamma, beta = random.standard_normal((2, shape[-1]))
    for array in (x, gamma, beta, dy):
        array.flags.writeable = False
    return x, gamma, beta, dy


@pytest.mark.parametrize("shape", [(17,), (3, 17), (2, 3, 17), (2, 1, 2, 17), (4, 1)])
@pytest.mark.parametrize("eps", [1e-5, 1.0])
@pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
def test_exact_fractions(shape: tuple[int, ...], eps: float, *, centred: bool) -> None:
    """On rows whose mean is at most their standard deviation, only the sums of dx cancel.

    Each of the three sums over D elements then has an error of a few sqrt(D)*u (pairwise:
    log2(D)*u) of its largest term. 64*u covers D = 17; a wrong formula has an error of 1e-2.
    """
    x, gamma, beta, dy = layer_norm_inputs(*shape)
    if centred:
        y, saved = textbook.forward(x, gamma, beta, eps)
        dx, dgamma, dbeta = textbook.backward(dy, saved)
        exact_dbeta = [float(sum(fractions(column))) for column in dy.reshape(-1, shape[-1]).T]
        assert np.abs(dbeta - exact_dbeta).max() <= 64 * U * np.abs(dbeta).max()
    else:
        y, saved = textbook.rms_norm_forward(x, gamma, eps)
        dx, dgamma = textbook.rms_norm_backward(dy, saved)
        beta = np.zeros_like(gamma)
    exact_dgamma = np.zeros(shape[-1])
    for index in np.ndindex(shape[:-1]):
        row = ExactRow.of(fractions(x[index]), Fraction(eps), centred=centred)
        xhat = np.array([float(c * row.rstd()) for c in row.c])
        g = [a * b for a, b in zip(fractions(gamma), fractions(dy[index]), strict=True)]
        bracket = row.dx_compact(g) if centred else row.dx_uncentred(g)
        exact_dx = np.array([float(value * row.rstd()) for value in bracket])
        exact_dgamma += dy[index] * xhat
        scale = float(max(map(abs, g)) * row.rstd())
        assert np.abs(y[index] - (gamma * xhat + beta)).max() <= 64 * U * np.abs(y).max()
        assert np.abs(dx[index] - exact_dx).max() <= 64 * U * scale
    assert np.abs(dgamma - exact_dgamma).max() <= 64 * U * np.abs(exact_dgamma).max()


class TestEdges:
    def test_zero_input(self) -> None:
        _, gamma, beta, dy = layer_norm_inputs(2, 3, 5)
        y, saved = textbook.forward(np.zeros((2, 3, 5)), gamma, beta, eps=0.25)
        dx, dgamma, _ = textbook.backward(dy, saved)
        g = gamma * dy
        np.testing.assert_array_equal(y, np.broadcast_to(beta, y.shape))
        np.testing.assert_array_equal(dx, 2 * (g - g.mean(axis=-1, keepdims=True)))
        np.testing.assert_array_equal(dgamma, np.zeros(5))

    def test_rows_of_one_element(self) -> None:
        x, gamma, beta, dy = layer_norm_inputs(4, 3, 1)
        y, saved = textbook.forward(x, gamma, beta)
        dx, dgamma, dbeta = textbook.backward(dy, saved)
        np.testing.assert_array_equal(y, np.broadcast_to(beta, y.shape))
        np.testing.assert_array_equal(dx, np.zeros_like(x))
        np.testing.assert_array_equal(dgamma, [0.0])
        assert dbeta == pytest.approx(dy.sum(), rel=16 * U)

    def test_constant_row_among_others(self) -> None:
        x, gamma, beta, dy = layer_norm_inputs(3, 8)
        with_constant = x.copy()
        with_constant[1] = 1234.0
        y, saved = textbook.forward(with_constant, gamma, beta)
        dx, _, _ = textbook.backward(dy, saved)
        y_plain, saved_plain = textbook.forward(x, gamma, beta)
        dx_plain, _, _ = textbook.backward(dy, saved_plain)
        np.testing.assert_array_equal(y[1], beta)
        np.testing.assert_array_equal(y[[0, 2]], y_plain[[0, 2]])
        np.testing.assert_array_equal(dx[[0, 2]], dx_plain[[0, 2]])
        assert np.isfinite(dx).all()

    def test_constant_row_whose_mean_is_rounded(self) -> None:
        """The textbook form is wrong here: the mean has an error of one ulp, larger than eps."""
        y, _ = textbook.forward(
            np.full(3, 12345.67, np.float32), np.ones(3, "f4"), np.zeros(3, "f4")
        )
        assert (np.abs(y - 0.295) < 1e-3).all()

    @pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_scales(self, scale: float, dtype: type[np.floating]) -> None:
        """A normalized row has mean 0 and mean square v/w, at scale 1e-3 about 1/11."""
        x, gamma, beta, dy = (a.astype(dtype) for a in layer_norm_inputs(4, 8, 1000))
        y, saved = textbook.forward(dtype(scale) * x, gamma, beta)
        gradients = textbook.backward(dy, saved)
        v = np.float64(scale) ** 2 * x.astype(np.float64).var(axis=-1)
        tolerance = 64 * float(np.finfo(dtype).eps)
        assert all(
            result.dtype == dtype and np.isfinite(result).all() for result in (y, *gradients)
        )
        assert np.abs(saved.xhat.mean(axis=-1)).max() <= tolerance
        assert np.abs((saved.xhat**2).mean(axis=-1) - v / (v + 1e-5)).max() <= tolerance

    @pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (0, 8)])
    def test_no_rows(self, shape: tuple[int, ...]) -> None:
        x, gamma, beta, dy = layer_norm_inputs(*shape)
        y, saved = textbook.forward(x, gamma, beta)
        dx, dgamma, dbeta = textbook.backward(dy, saved)
        assert y.shape == dx.shape == shape
        np.testing.assert_array_equal(dgamma, np.zeros(8))
        np.testing.assert_array_equal(dbeta, np.zeros(8))


class TestSaved:
    def test_three_arrays_and_no_more(self) -> None:
        x, gamma, beta, _ = layer_norm_inputs(2, 3, 4)
        _, saved = textbook.forward(x, gamma, beta)
        assert saved._fields == ("xhat", "rstd", "gamma")
        arrays = [each for each in gc.get_referents(saved) if isinstance(each, np.ndarray)]
        assert len(arrays) == 3
        assert saved.xhat.shape == (2, 3, 4)
        assert saved.rstd.shape == (2, 3, 1)
        assert saved.gamma is gamma

    def test_results_share_no_memory_with_inputs(self) -> None:
        """So x and beta may change before backward."""
        x, gamma, beta, dy = layer_norm_inputs(4)
        y, saved = textbook.forward(x, gamma, beta)
        for result in (y, saved.xhat, *textbook.backward(dy, saved)):
            assert not any(np.shares_memory(result, array) for array in (x, gamma, beta, dy))


@pytest.mark.parametrize(
    ("x", "gamma", "beta", "message"),
    [
        ((2, 4), (1,), (4,), r"gamma must have shape \(4,\), got \(1,\)"),
        ((2, 4), (4,), (2, 4), r"beta must have shape \(4,\), got \(2, 4\)"),
        ((), (), (), "x must have at least one element on its last axis"),
        ((3, 0), (0,), (0,), "x must have at least one element on its last axis"),
    ],
)
def test_shapes_that_raise(
    x: tuple[int, ...], gamma: tuple[int, ...], beta: tuple[int, ...], message: str
) -> None:
    """Broadcasting would accept most of these and return a gradient of another shape."""
    with pytest.raises(ValueError, match=message):
        textbook.forward(np.ones(x), np.ones(gamma), np.ones(beta))
    if "beta" not in message:
        with pytest.raises(ValueError, match=message):
            textbook.rms_norm_forward(np.ones(x), np.ones(gamma))


def test_shapes_of_dy_that_raise() -> None:
    message = r"dy must have the shape of y, \(2, 4\), got \(4,\)"
    _, saved = textbook.forward(np.ones((2, 4)), np.ones(4), np.ones(4))
    for backward in (textbook.backward, textbook.rms_norm_backward):
        with pytest.raises(ValueError, match=message):
            backward(np.ones(4), saved)
