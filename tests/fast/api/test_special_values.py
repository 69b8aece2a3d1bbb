"""Special values of the promise by hand: infinities, NaN, zeros, constant rows, extremes.

All tests run in both modes, with warnings as errors and with NumPy raising at every flag.
"""

from typing import Any

import numpy as np
import pytest

from shared.api.helpers import NAN_BITS, Array, Inputs, Passes, both_passes
from shared.promise.oracle import FORMATS, bits

INF, NAN = np.inf, np.nan
pytestmark = pytest.mark.usefixtures("every_flag")


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0, 1)])
def test_no_rows(passes: Passes, shape: tuple[int, ...]) -> None:
    y, dx, dgamma, dbeta = passes(np.empty(shape), gamma=NAN, beta=INF)
    assert y.shape == dx.shape == shape
    passes.assert_is(dgamma, [0.0] * shape[-1])
    passes.assert_is(dbeta, [0.0] * shape[-1])


@pytest.mark.parametrize(
    ("bad", "eps"),
    [([1, INF, 3], 1e-5), ([1, -INF, INF], 1.0), ([NAN, 2, 3], 0.0), ([5, 5, 5], 0.0)],
)
def test_rows_without_a_result(passes: Passes, bad: list[float], eps: float) -> None:
    """NaN even where gamma = 0; other rows and dbeta are not affected."""
    good, gamma, dy = [1, 2, 4], [0, 1, INF], [[1, 2, 3], [4, INF, 6]]
    alone = passes([good], gamma, 1.0, dy[:1], eps)
    y, dx, dgamma, dbeta = passes([good, bad], gamma, 1.0, dy, eps)
    passes.assert_is(y[1], NAN)
    passes.assert_is(dx[1], NAN)
    passes.assert_is(dgamma, NAN)
    passes.assert_is(dbeta, [5, INF, 9])
    for result, right in zip((y[:1], dx[:1]), alone, strict=False):
        assert (bits(result) == bits(right)).all()


BY_HAND: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one element without eps": (
        {"x": [[3], [4]], "eps": 0.0}, {"y": NAN, "dx": NAN, "dgamma": NAN, "dbeta": 2}),
    # c = (-1, 0, 1), so inf*0 is in the middle. Where gamma is not finite, g = gamma*0 is NaN, and
    # dx all along the row with it.
    **{f"gamma {gamma}, beta {beta}": (
        {"x": [[1, 2, 3]], "gamma": gamma, "beta": beta, "dy": 0.0},
        {"y": y, "dx": 0.0 if np.isfinite(gamma) else NAN, "dgamma": 0.0, "dbeta": 0.0})
       for gamma, beta, y in (
        (INF, 0.0, [[-INF, NAN, INF]]),
        (-INF, 0.0, [[INF, NAN, -INF]]),
        (INF, INF, [[NAN, NAN, INF]]),
        (1.0, [INF, -INF, NAN], [[INF, -INF, NAN]]),
        (0.0, [INF, -INF, NAN], [[INF, -INF, NAN]]),
        (NAN, [INF, 0.0, -0.0], NAN))},
    "one gamma is infinite": ({"x": [[1, 2, 3]], "gamma": [1, 1, INF]}, {"dx": NAN}),
    **{f"dy {dy} of {x}": ({"x": x, "dy": [dy]}, {"dx": NAN})
       for x in ([[1, 2]], [[2, 2]]) for dy in ([INF, 1], [1, -INF], [NAN, 1])},
    "dy is infinite, of one element": ({"x": [[2]], "dy": INF}, {"dx": NAN}),
    "dy is NaN, of one element": ({"x": [[2]], "dy": NAN}, {"dx": NAN}),
    # g - mean(g) and xhat*mean(g*xhat) are infinities of different sign.
    "signs that agree": ({"x": [[3, 2, -8]], "dy": [[INF, 1, 1]]}, {"dx": NAN}),
    # r = 1/sqrt(1/4) = 2 and mean(g) = 3.
    "a constant row": (
        {"x": [[5, 5, 5]], "dy": [[1, 2, 6]], "eps": 0.25},
        {"dx": [[-4, -2, 6]], "dgamma": 0.0, "dbeta": [1, 2, 6]}),
    "rows of one element": (
        {"x": [[3], [-4]], "gamma": 2, "beta": -5, "dy": [[7], [9]]},
        {"y": -5, "dx": 0.0, "dgamma": 0.0, "dbeta": 16}),
    # Beside a constant row, a row whose xhat is (-1, 1); in the second, w = 4.
    "dbeta of a constant row": (
        {"x": [[3, 3], [1, 3]], "dy": [[7, 7], [2, 5]], "eps": 0.0}, {"dbeta": [9, 12]}),
    "dgamma of a constant row": (
        {"x": [[3, 3], [0, 2]], "dy": [[7, 7], [2, 4]], "eps": 3.0}, {"dgamma": [-1, 2]}),
    # w = 4, r = 1/2, eps/w = 3/4: dx is 1/2 * 3/4 * (8 - 0)/2. The textbook form cancels.
    "two elements": ({"x": [[0, 2]], "dy": [[8, 0]], "eps": 3.0}, {"dx": [[1.5, -1.5]]}),
    "two elements without eps": ({"x": [[3, 2]], "dy": [[1, 2]], "eps": 0.0}, {"dx": 0.0}),
    **{f"+0 in y for gamma {gamma} and beta -0": (
        {"x": [[5, 5, 5]], "gamma": gamma, "beta": -0.0}, {"y": 0.0})
       for gamma in (1.0, -1.0, 0.0, -0.0)},
    **{f"+0 in y for gamma {gamma}": (
        {"x": [[1, 2, 3]], "gamma": gamma, "beta": -0.0}, {"y": 0.0}) for gamma in (0.0, -0.0)},
    **{f"y cancels, gamma {sign}": (
        {"x": [[0, 2]], "gamma": sign, "beta": [sign, -sign], "eps": 0.0}, {"y": 0.0})
       for sign in (1, -1)},
    # The mean of three equal numbers is exact, so this holds in fast mode too.
    **{f"+0 in dx of {x}, dy {dy}": ({"x": x, "dy": dy}, {"dx": 0.0})
       for x in ([[5, 5, 5]], [[1, 2, 3]], [[7]], [[1, 2]]) for dy in (0.0, -0.0, 3.0, -3.0)},
    **{f"+0 in dx of {x}, gamma {gamma}, dy {dy}": (
        {"x": x, "gamma": gamma, "dy": [dy]}, {"dx": 0.0})
       for x in ([[1, 2, 4]], [[4, 2, 1]], [[5, 5, 5]]) for gamma in (1.0, -1.0)
       for dy in ([-0.0, 0.0, 0.0], [0.0, -0.0, 0.0], [0.0, 0.0, -0.0])},
    **{f"+0 in sums of {dy}": ({"x": [[1, 2, 3]], "dy": dy}, {"dgamma": 0.0, "dbeta": 0.0})
       for dy in (-0.0, 0.0)},
    "a sum that cancels": (
        {"x": [[1, 2, 3], [3, 2, 1]], "dy": [[1, -4, 3], [1, 4, 3]]}, {"dgamma": 0.0}),
}  # fmt: skip


def test_by_hand(passes: Passes) -> None:
    for name, (arguments, expected) in BY_HAND.items():
        passes.assert_results(name, arguments, expected)


@pytest.mark.parametrize("gamma", [1.0, -1.0])
def test_y_at_the_mean(passes: Passes, gamma: float) -> None:
    passes.assert_is(passes([[1, 2, 3]], gamma, -0.0)[0][:, 1], 0.0)


def test_the_sign_is_that_of_the_exact_c(passes: Passes) -> None:
    """The mean is 0 exactly, but not in a float64 sum: 2**60 + 1 is 2**60 there."""
    if passes.dtype == np.float16:
        pytest.skip("every sum of so few float16 numbers is exact in float64")
    x = [[2.0**60, 1, -(2.0**60), -1, 0]]
    y, _, dgamma, _ = passes(x, gamma=INF, dy=INF)
    passes.assert_is(y, [[INF, INF, -INF, -INF, NAN]])
    passes.assert_is(dgamma, [INF, INF, -INF, -INF, NAN])


def test_dy_that_is_not_finite(passes: Passes) -> None:
    """With c = (-1, 0, 1) in the first row: the sums by IEEE rules, dx of the others untouched."""
    x = [[1, 2, 3], [-9, 2, 1], [1, 2, 4]]
    quiet = passes(x[2:], dy=[[1, 2, 5]])[1]
    for first, second, dgamma, dbeta in (
        ([INF, 1, 1], [1, 1, 1], -INF, INF),
        ([1, 1, -INF], [1, 1, -INF], -INF, -INF),
        ([-INF, 0, 0], [INF, 0, 0], NAN, NAN),
        ([INF, 0, 0], [-INF, 0, 0], NAN, NAN),
        ([1, INF, 1], [1, 1, 1], NAN, INF),
        ([1, NAN, 1], [1, INF, 1], NAN, NAN),
    ):
        column = int(np.flatnonzero(~np.isfinite(first))[0])
        results = passes(x, dy=[first, second, [1, 2, 5]])
        passes.assert_is(results[1][0], NAN)
        assert (bits(results[1][2:]) == bits(quiet)).all()
        passes.assert_is(results[2][column], dgamma)
        passes.assert_is(results[3][column], dbeta)
        others = np.delete(results[3], column).astype(float)
        assert np.isfinite(others).all()


def test_sums_do_not_overflow_midway(passes: Passes) -> None:
    """Xhat is (-1, 1) exactly."""
    largest = passes.largest
    dy = [[largest] * 2, [largest] * 2, [-largest] * 2, [-largest / 2] * 2]
    _, _, dgamma, dbeta = passes([[-1, 1]] * 4, dy=dy, eps=0.0)
    passes.assert_is(dgamma, [-largest / 2, largest / 2])
    passes.assert_is(dbeta, largest / 2)
    _, _, dgamma, dbeta = passes([[-1, 1]] * 4, dy=largest, eps=0.0)
    passes.assert_is(dgamma, [-INF, INF])
    passes.assert_is(dbeta, INF)


class TestConstantRows:
    @pytest.mark.parametrize("value", [0.0, -0.0, 3.0, 0.1])
    @pytest.mark.parametrize("size", [1, 3, 67])
    def test_y_is_beta_in_the_type_of_x(self, passes: Passes, size: int, value: float) -> None:
        """Rounded once: halfway between two numbers of the type and a little more is the upper."""
        precision = FORMATS[passes.dtype].precision
        beta = np.full(size, 1 + 2.0**-precision + 2.0**-40 * (precision < 40))
        x = passes.of(np.full((2, size), value))
        inputs = Inputs(x, passes.of(np.ones(size)), beta, x)
        upper = 1 + 2.0 ** (1 - precision) if precision < 40 else 1.0
        passes.assert_is(both_passes(inputs, passes.backend, passes.rounding)[0], upper)


class TestTwoElements:
    def test_powers_of_r_would_overflow(self, passes: Passes) -> None:
        """With eps = 2**-1000 and a constant row, r = 2**500 and r**3 is infinite."""
        if passes.dtype == np.float64:
            dx = passes([[7, 7]], dy=[[2.0**-400, 0]], eps=2.0**-1000)[1]
            passes.assert_is(dx, [[2.0**99, -(2.0**99)]])
            x = [[-(2.0**-500), 2.0**-500]]  # w = 2**-998
            dx = passes(x, dy=[[2.0**-496, 0]], eps=3 * 2.0**-1000)[1]
            passes.assert_is(dx, [[3, -3]])
        else:
            dx = passes([[7, 7]], dy=[[passes.smallest, 0]], eps=2.0**-1000)[1]
            passes.assert_is(dx, [[INF, -INF]])

    def test_a_tiny_gradient_keeps_its_sign(self, passes: Passes) -> None:
        """Dx is 2**-1000 beside a smaller term."""
        dx = passes([[-1, 1]], dy=[[2, 0]], eps=2.0**-1000)[1]
        tiny = 2.0**-1000 if passes.dtype == np.float64 else 0.0
        passes.assert_is(dx, [[tiny, -tiny]])


class TestExtremes:
    def test_what_rounds_to_zero_keeps_its_sign(self, passes: Passes) -> None:
        """Xhat is +-0.383 and +-1.534, times the smallest number there is."""
        for tiny in (passes.smallest, -passes.smallest):
            y = passes([[-4, -1, 0, 1, 4]], tiny)[0]
            passes.assert_is(y, [[-2 * tiny, -0.0 * tiny, 0.0, 0.0 * tiny, 2 * tiny]])

    def test_overflow(self, passes: Passes) -> None:
        """Xhat is -1.069, -0.267 and 1.336."""
        y = passes([[1, 2, 4]], passes.largest)[0]
        assert np.isfinite(y[0, 1])
        passes.assert_is(y[0, [0, 2]], [-INF, INF])

    def test_gradual_underflow(self, passes: Passes) -> None:
        """Xhat is (-1, 1); and r = 2 for a constant row and eps = 1/4."""
        tiny = passes.smallest
        passes.assert_is(passes([[0, 2]], 3 * tiny, eps=0.0)[0], [[-3 * tiny, 3 * tiny]])
        passes.assert_is(passes([[5, 5]], dy=[[tiny, 0]], eps=0.25)[1], [[tiny, -tiny]])
        passes.assert_is(passes([[5, 5]], dy=[[tiny, 0]])[3], [tiny, 0])

    @pytest.mark.parametrize("sign", [1, -1])
    def test_no_intermediate_overflows(self, passes: Passes, sign: int) -> None:
        """Without eps, x and dy both times 2**k give the same y and dx; k is 66 in float32."""
        power = {"float16": 13, "float64": 1000}.get(passes.dtype.name, 66)
        x, dy = np.array([[1, 2, 4, -3, 0]]), np.array([[2, 1, 1, -1, 3]])
        right = passes(x, dy=dy, eps=0.0)
        scaled = passes(x * 2.0 ** (sign * power), dy=dy * 2.0 ** (sign * power), eps=0.0)
        if passes.rounding == "correct":
            assert (bits(scaled[0]) == bits(right[0])).all()
            assert (bits(scaled[1]) == bits(right[1])).all()
        else:  # the last bit is what fast mode does not promise; K = 8 of u is some ulp
            ulps = 2 * 2.0 ** (1 - FORMATS[passes.dtype].precision)
            for result, expected in zip(scaled[:2], right[:2], strict=True):
                error = result.astype(np.float64) - expected.astype(np.float64)
                size = np.abs(expected.astype(np.float64))
                if passes.dtype == np.float64:  # nothing wider: what cancels in dx is seen
                    size = size.max()
                assert (np.abs(error) <= ulps * size).all()

    def test_the_largest_and_the_smallest_numbers(self, passes: Passes) -> None:
        """Xhat is (-1, 1) for whatever x, if eps is 0 or nothing beside x."""
        for size in (passes.largest, passes.smallest):
            passes.assert_is(passes([[-size, size]], eps=0.0)[0], [[-1, 1]])
        passes.assert_is(passes([[-passes.largest, passes.largest]], eps=5e-324)[0], [[-1, 1]])


class TestBitsOfNaN:
    @staticmethod
    def other_nans(dtype: np.dtype[Any]) -> Array:
        """Negative, with a payload, and one that signals."""
        form = FORMATS[dtype]
        patterns = [form.nan | form.minus, form.nan | 5, form.infinity | 1]
        return np.array(patterns, form.storage).view(dtype)

    def test_from_any_argument(self, passes: Passes) -> None:
        """Arithmetic would hand on the sign and the payload."""
        good = passes.of([1, 2, 4])
        for nan in self.other_nans(passes.dtype):
            bad = good.copy()
            bad[1] = nan
            for x, gamma, beta, dy in (
                (bad, good, good, good),
                (good, bad, good, good),
                (good, good, bad, good),
                (good, good, good, bad),
            ):
                for result in passes(x[np.newaxis], gamma, beta, dy[np.newaxis]):
                    wrong = np.isnan(result.astype(np.float64))
                    assert (bits(result)[wrong] == NAN_BITS[passes.dtype]).all()
            passes.assert_is(passes(good[np.newaxis], gamma=bad)[0][0, 1], NAN)
            passes.assert_is(passes(good[np.newaxis], beta=bad)[0][0, 1], NAN)
            passes.assert_is(passes(good[np.newaxis], dy=bad)[1], NAN)
            passes.assert_is(passes(good[np.newaxis], dy=bad)[3][1], NAN)
