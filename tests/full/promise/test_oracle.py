"""The oracle: y by hand, exact fractions, and agreement of its two routes.

By hand are also the special values of `fast/api`, which promise tests compare with the oracle.
"""

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
