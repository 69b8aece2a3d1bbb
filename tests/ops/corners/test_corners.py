"""The corners of the promise where something is not finite or not there, by hand.

The rest of its table is in `test_corners_of_finite_rows`. Both run in both modes, with warnings as
errors and with NumPy raising at every flag.
"""

import numpy as np
import pytest

from ops.corners.passes import Passes
from promise.oracle import bits

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
    """NaN even where gamma = 0; and no other row, nor dbeta, hears of it."""
    good, gamma, dy = [1, 2, 4], [0, 1, INF], [[1, 2, 3], [4, INF, 6]]
    alone = passes([good], gamma, 1.0, dy[:1], eps)
    y, dx, dgamma, dbeta = passes([good, bad], gamma, 1.0, dy, eps)
    passes.assert_is(y[1], NAN)
    passes.assert_is(dx[1], NAN)
    passes.assert_is(dgamma, NAN)
    passes.assert_is(dbeta, [5, INF, 9])
    for result, right in zip((y[:1], dx[:1]), alone, strict=False):
        assert (bits(result) == bits(right)).all()


def test_one_element_without_eps(passes: Passes) -> None:
    y, dx, dgamma, dbeta = passes([[3], [4]], eps=0.0)
    for result in (y, dx, dgamma):
        passes.assert_is(result, NAN)
    passes.assert_is(dbeta, 2)


def test_gamma_and_beta_that_are_not_finite(passes: Passes) -> None:
    """C = (-1, 0, 1), so inf*0 is in the middle."""
    x = [[1, 2, 3]]
    for gamma, beta, y in (
        (INF, 0.0, [-INF, NAN, INF]),
        (-INF, 0.0, [INF, NAN, -INF]),
        (INF, INF, [NAN, NAN, INF]),
        (1.0, [INF, -INF, NAN], [INF, -INF, NAN]),
        (0.0, [INF, -INF, NAN], [INF, -INF, NAN]),
        (NAN, [INF, 0.0, -0.0], NAN),
    ):
        results = passes(x, gamma, beta, dy=0.0)
        passes.assert_is(results[0], [y] if isinstance(y, list) else y)
        # g = gamma*0 is NaN where gamma is not finite, and dx all along the row with it.
        passes.assert_is(results[1], 0.0 if np.isfinite(gamma) else NAN)
        passes.assert_is(results[2], 0.0)
        passes.assert_is(results[3], 0.0)
    assert np.isnan(passes(x, [1, 1, INF])[1].astype(float)).all()


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


@pytest.mark.parametrize("dy", [[INF, 1], [1, -INF], [NAN, 1]])
def test_dy_that_is_not_finite_in_two_elements(passes: Passes, dy: list[float]) -> None:
    passes.assert_is(passes([[1, 2]], dy=[dy])[1], NAN)
    passes.assert_is(passes([[2, 2]], dy=[dy])[1], NAN)
    passes.assert_is(passes([[2]], dy=[[dy[0]]])[1], 0.0 if dy[0] == 1 else NAN)


def test_a_row_of_signs_that_agree(passes: Passes) -> None:
    """Where g - mean(g) and xhat*mean(g*xhat) are infinities of different sign, still NaN."""
    passes.assert_is(passes([[3, 2, -8]], dy=[[INF, 1, 1]])[1], NAN)


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
