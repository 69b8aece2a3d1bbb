"""The oracle: results computed by hand, exact fractions, and agreement of its two routes."""

from fractions import Fraction
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from flint import arb

from shared.exact_row import ExactRow, fractions
from shared.promise import oracle
from shared.promise.checking import bytes_of, expected_results
from shared.promise.families import DTYPES, Array, cases
from shared.promise.oracle import FORMATS, bits, correct_backward, correct_forward, rational

HALF, BRAIN, SINGLE, DOUBLE = np.float16, ml_dtypes.bfloat16, np.float32, np.float64
INF, NAN = float("inf"), float("nan")
ABOVE_8, BELOW_8 = np.nextafter(8.0, [INF, 0.0]).tolist()


def array(values: Any, dtype: Any = SINGLE) -> Array:
    return np.asarray(values, DOUBLE).astype(dtype)


def assert_bits(actual: Array | None, expected: Any) -> None:
    assert actual is not None
    wanted = array(expected, actual.dtype)
    # The promised NaN, not the NaN of a cast.
    pattern = np.where(np.isnan(wanted), FORMATS[actual.dtype].nan, bits(wanted))
    assert bits(actual).tolist() == pattern.tolist(), (actual, expected)


# x = (1, -1) has xhat = +-1/sqrt(1 + eps): +-1 at eps = 0, +-1/2 at 3 and +-1/3 at 8.
@pytest.mark.parametrize(
    ("dtype", "eps", "gamma", "beta", "expected"),
    [
        (SINGLE, 8, 3, 2**-24, (1, -1 + 2**-24)),
        (SINGLE, 8, 3, 3 * 2**-24, (1 + 2**-22, -1 + 3 * 2**-24)),
        (SINGLE, 8, -3, -(2**-24), (-1, 1 - 2**-24)),
        (SINGLE, BELOW_8, 3, 2**-24, (1 + 2**-23, -1 + 2**-24)),
        (SINGLE, ABOVE_8, 3, 2**-24, (1, -1 + 2**-24)),
        (HALF, 3, 2, 2**-11, (1, -1 + 2**-11)),
        (HALF, 3, 2, 3 * 2**-11, (1 + 2**-9, -1 + 3 * 2**-11)),
        (BRAIN, 0, 1, 2**-8, (1, -1 + 2**-8)),
        (BRAIN, 0, 1, 3 * 2**-8, (1 + 2**-6, -1 + 3 * 2**-8)),
        (BRAIN, 5e-324, 1, 2**-8, (1, -1 + 2**-8)),
        (BRAIN, 5e-324, 1, 3 * 2**-8, (1 + 2**-7, -1 + 3 * 2**-8)),
        (DOUBLE, 8, 3, 2**-53, (1, -1 + 2**-53)),
        (DOUBLE, 8, 3, 3 * 2**-53, (1 + 2**-51, -1 + 3 * 2**-53)),
        # An exact zero is +0; a result that rounds to zero keeps its sign.
        (SINGLE, 0, 1, -1, (0.0, -2)),
        (SINGLE, 0, 0, -0.0, (0.0, 0.0)),
        (SINGLE, 8, -(2**-149), 0, (-0.0, 0.0)),
        (SINGLE, 3, -(2**-149), -0.0, (-0.0, 0.0)),
        (SINGLE, 3, 3 * 2**-149, 0, (2**-148, -(2**-148))),
        (DOUBLE, 3, 3 * 5e-324, 0, (1e-323, -1e-323)),
        # 65520 is midway between the largest float16 and 2^16.
        (HALF, 0, 65504, 16, (INF, -65472)),
        (HALF, 0, 65504, 15, (65504, -65504)),
        (HALF, 1e300, 65504, 0, (0.0, -0.0)),
        (DOUBLE, 0, 1.7976931348623157e308, 1e292, (INF, -1.7976931348623155e308)),
    ],
)
def test_y_by_hand(
    dtype: Any, eps: float, gamma: float, beta: float, expected: tuple[float, float]
) -> None:
    y = correct_forward(
        array([[1, -1]], dtype), array([gamma] * 2, dtype), array([beta] * 2, dtype), float(eps)
    )
    assert_bits(y, [expected])


def test_y_is_rounded_once() -> None:
    # 1 + 2^-8 + 2^-40 is above a midpoint of bfloat16, but by way of float32 it becomes the tie.
    beta = array([2**-8 + 2**-40] * 2, DOUBLE)
    assert_bits(correct_forward(array([[1, -1]], BRAIN), None, beta, 0.0)[0, :1], [1 + 2**-7])


def test_dx_by_hand() -> None:
    def dx(dy: list[float], eps: float, dtype: Any = HALF) -> Array:
        return correct_backward(array([dy], dtype), array([[1, -1]], dtype), None, None, eps)[0]

    # At eps = 3, w = 4 and dx = 3/16*(dy_0 - dy_1): 2049 and 2055 are ties.
    assert_bits(dx([16 * 683, 0], 3.0), [[2048, -2048]])
    assert_bits(dx([16 * 685, 0], 3.0), [[2056, -2056]])
    assert_bits(dx([5, 5], 3.0), [[0.0, 0.0]])
    assert_bits(dx([5, 6], 0.0), [[0.0, 0.0]])
    # About -eps/2, for which the textbook form would need a thousand digits; then half of it.
    assert_bits(dx([5, 6], 1e-323, DOUBLE), [[-5e-324, 5e-324]])
    assert_bits(dx([5, 6], 5e-324, DOUBLE), [[-0.0, 0.0]])


def test_dgamma_and_dbeta_by_hand() -> None:
    x = array([[1, 0, -1]])
    gamma, dy = array([1, 1, 1]), array([[1, 2, 3]])

    def both(rows: list[Array], dys: list[Array], eps: float) -> tuple[Array | None, Array | None]:
        return correct_backward(np.vstack(dys), np.vstack(rows), gamma, gamma, eps)[1:]

    # xhat is irrational and equal for x and 2x: only exact arithmetic shows that these cancel.
    for rows, dys in (([x, -x], [dy, dy]), ([x, 2 * x], [dy, -dy]), ([x, -2 * x], [dy, dy])):
        assert_bits(both(rows, dys, 0.0)[0], [0.0, 0.0, 0.0])
    dgamma, dbeta = both([x, -x, 2 * x], [dy, dy, dy], 0.0)
    assert dgamma is not None
    # One row remains, sqrt(3/2) and -3*sqrt(3/2): 1.2247448713915890 and 3.6742346141747671.
    assert_bits(dgamma, [1.2247448713915890, 0.0, -3.6742346141747671])
    assert_bits(dbeta, [3, 6, 9])
    # 2^24 + 1 is a tie, which the smallest subnormal decides in any order of addition.
    for least, expected in ((0.0, 2**24), (2**-149, 2**24 + 2), (-(2**-149), 2**24)):
        dys = [array([[value] * 3]) for value in (2**100, 1, least, 2**24, -(2**100))]
        assert_bits(both([x] * 5, dys, 1.0)[1], [expected] * 3)


def test_corners() -> None:
    x, dy = array([[1, -1], [3, 3], [INF, 0], [2, NAN]]), array([[1, 0], [2, 0], [3, 1], [4, 1]])
    two = array([2, 2])
    assert_bits(correct_forward(x, two, two, 3.0), [[3, 1], [2, 2], [NAN] * 2, [NAN] * 2])
    assert_bits(correct_forward(x[:2], two, two, 0.0), [[4, 0.0], [NAN] * 2])
    assert_bits(correct_forward(array([[7]]), array([2]), None, 0.0), [[NAN]])
    assert_bits(correct_forward(array([[7]]), array([2]), array([5]), 1.0), [[5]])
    dx, dgamma, dbeta = correct_backward(dy, x, two, two, 3.0)
    root_third = 1 / np.sqrt(3.0)
    assert_bits(dx, [[0.375, -0.375], [2 * root_third, -2 * root_third], [NAN] * 2, [NAN] * 2])
    assert_bits(dgamma, [NAN, NAN])
    assert_bits(dbeta, [10, 2])
    assert correct_backward(dy, x, None, None, 3.0)[1:] == (None, None)
    dx, dgamma, dbeta = correct_backward(dy[:0], x[:0], array([2, 2], HALF), two, 3.0)
    assert (dx.shape, correct_forward(x[:0], two, two, 3.0).shape) == ((0, 2), (0, 2))
    assert_bits(dgamma, [0.0, 0.0])
    assert dgamma is not None
    assert dgamma.dtype == HALF
    assert_bits(dbeta, [0.0, 0.0])


def test_non_finite_parameters_follow_ieee() -> None:
    x = array([[1, -1, 0]])
    for gamma, beta, expected in (
        (INF, 0, (INF, -INF, NAN)),
        (-INF, INF, (NAN, INF, NAN)),
        (NAN, 0, (NAN, NAN, NAN)),
        (0, -INF, (-INF, -INF, -INF)),
        (1, NAN, (NAN, NAN, NAN)),
    ):
        y = correct_forward(x, array([gamma] * 3), array([beta] * 3), 1.0)
        assert_bits(y, [expected])
    one = array([1, 1, 1])
    dy = array([[INF, 1, INF], [1, -INF, 1], [1, 1, 1]])
    rows = np.repeat(x, 3, axis=0)
    dx, dgamma, dbeta = correct_backward(dy, rows, one, one, 1.0)
    assert np.isnan(dx[:2]).all()
    assert np.isfinite(dx[2]).all()
    assert_bits(dgamma, [INF, INF, NAN])
    assert_bits(dbeta, [INF, -INF, INF])
    dgamma, dbeta = correct_backward(dy[:2], np.vstack([x, -x]), one, one, 1.0)[1:]
    assert_bits(dgamma, [INF, -INF, NAN])
    dgamma, dbeta = correct_backward(array([[INF] * 3, [-INF] * 3]), rows[:2], one, one, 1.0)[1:]
    assert_bits(dgamma, [NAN, NAN, NAN])
    assert_bits(dbeta, [NAN, NAN, NAN])
    assert np.isnan(correct_backward(dy[2:], x, array([1, INF, 1]), None, 1.0)[0]).all()


def is_above(a: Fraction, w: Fraction, boundary: Fraction) -> bool:
    """Return True if a/sqrt(w) > boundary, by squares."""
    if (a > 0) != (boundary > 0):
        return a > boundary
    return (a * a > boundary * boundary * w) == (a > 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fractions(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(3)
    for size in (2, 3, 5, 8):
        x, dy = (array(rng.standard_normal((1, size)), dtype) for _ in range(2))
        gamma, beta = (array(rng.standard_normal(size), dtype) for _ in range(2))
        row = ExactRow.of(fractions(x[0]), Fraction(1e-5))
        g = [a * b for a, b in zip(fractions(gamma), fractions(dy[0]), strict=True)]
        numerators = [a * c for a, c in zip(fractions(gamma), row.c, strict=True)]
        y = correct_forward(x, gamma, beta, 1e-5)[0]
        dx = correct_backward(dy, x, gamma, beta, 1e-5)[0][0]
        expected = [
            (y, numerators, fractions(beta)),
            (dx, row.dx_compact(g), [Fraction(0)] * size),
        ]
        for result, factors, shifts in expected:
            for value, factor, shift in zip(result, factors, shifts, strict=True):
                # The exact result lies between the midpoints to the neighbours.
                pattern = int(bits(value[np.newaxis])[0])
                patterns = [pattern - 1, pattern, pattern + 1]
                near = fractions(np.array(patterns, bits(x).dtype).view(dtype))
                low, high = sorted((a + b) / 2 - shift for a, b in pairwise(near))
                assert is_above(factor, row.w, low)
                assert not is_above(factor, row.w, high)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dgamma_of_mirrored_rows_is_zero(dtype: np.dtype[Any]) -> None:
    case = next(case for case in cases(dtype, 0) if str(case).split()[1] == "mirrored")
    assert str(case).split()[4] == "dy=same_in_all_rows"
    dgamma = correct_backward(case.dy, case.x, case.gamma, case.beta, case.eps)[1]
    assert_bits(dgamma, np.zeros(case.x.shape[1]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_both_routes_agree(dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    small = [case for case in cases(dtype, 0) if case.x.size < 600]
    by_balls = [bytes_of(*expected_results(case)) for case in small]
    monkeypatch.setattr(oracle, "BALL_PRECISIONS", ())
    for case, expected in zip(small, by_balls, strict=True):
        assert bytes_of(*expected_results(case)) == expected, str(case)


@pytest.mark.parametrize("dtype", [HALF, SINGLE])
def test_rounding_equals_that_of_the_processor(dtype: Any) -> None:
    rng = np.random.default_rng(4)
    values = rng.standard_normal(4000) * 2.0 ** rng.integers(-160, 130, 4000)
    into = FORMATS[np.dtype(dtype)]
    with np.errstate(all="ignore"):
        expected = bits(values.astype(dtype)).tolist()
    assert [into.round_rational(rational(value)) for value in values.tolist()] == expected
    assert [into.round_ball(arb(value)) for value in values.tolist()] == expected


def test_columns_select() -> None:
    rng = np.random.default_rng(5)
    x, dy = (array(rng.standard_normal((3, 9))) for _ in range(2))
    gamma = array(rng.standard_normal(9))
    some = [7, 0, 3]
    whole = correct_backward(dy, x, gamma, gamma, 1.0)
    part = correct_backward(dy, x, gamma, gamma, 1.0, some)
    for every, selected in zip(whole, part, strict=True):
        assert_bits(selected, array(every)[..., some])
    assert_bits(
        correct_forward(x, gamma, gamma, 1.0, some), correct_forward(x, gamma, gamma, 1.0)[:, some]
    )
