"""RMS normalization: its answers, against ball arithmetic, its special values, and its scales."""

import math
from typing import Any

import numpy as np
import pytest

from promise.oracle import correct_backward, correct_forward
from truenorm.verify.operation import Case
from truenorm.verify.operations import RMS_NORM, rms_norm_case
from truenorm.verify.oracle import expected
from truenorm.verify.suite import cases
from truenorm.verify.types import FORMATS, Array
from verify.answers.rounded_once import assert_rounded_once

SMALL = 300  # elements of x: beyond, ball arithmetic takes its time
NAN, INF = math.nan, math.inf


def _small_cases() -> list[Case]:
    also = ("no-gamma", "zero-eps", "tiny-eps", "float32-parameters")
    return [
        each
        for kind in FORMATS
        for each in cases(kind, "quick", also, operation=RMS_NORM)
        if each.x.size < SMALL and each.kind != "special"
    ]


def _right(case: Case) -> dict[str, Array | None]:
    """Return the results of a layer normalization of x and -x side by side, whose mean is 0.

    Its variance is mean(x^2); with dy and -dy for a gradient, and gamma twice, mean(g) is 0 too.
    """
    x, dy = (np.concatenate([each, -each], axis=1) for each in (case.x, case.dy))
    gamma = None if case.gamma is None else np.concatenate([case.gamma, case.gamma])
    size = case.shape[1]
    y = correct_forward(x, gamma, None, case.eps)
    dx, dgamma, _ = correct_backward(dy, x, gamma, None, case.eps)
    return {
        "y": y[:, :size],
        "dx": dx[:, :size],
        "dgamma": None if dgamma is None else dgamma[:size],
    }


@pytest.mark.parametrize("case", _small_cases(), ids=str)
def test_every_answer_is_rounded_correctly(case: Case) -> None:
    assert_rounded_once(expected(case), _right(case))


def _case(x: Any, gamma: Any, dy: Any, eps: float = 3.0) -> Case:
    arrays = (np.array(each, np.float64) for each in (x, gamma, dy))
    return rms_norm_case("by hand", tuple(arrays), eps)  # type: ignore[arg-type]


ROW = [1.0, 1.0, 1.0]  # mean(x^2) is 1, and with eps = 3, r is 1/2


@pytest.mark.parametrize(
    ("x", "gamma", "dy", "y", "dgamma"),
    [
        # An infinite x makes r = 0: finite elements give +0, whatever the sign of gamma.
        ([INF, 2.0, -1.0], [1, 1, -1], [1, 1, 1], [NAN, 0, 0], [NAN, 0.5, 0.5]),
        ([-INF, INF, 2.0], [1, 1, 1], [1, 1, 1], [NAN, NAN, 0], [NAN, NAN, 0.5]),
        # 0 times infinity is NaN, in gamma and in dy.
        ([INF, 2.0, 2.0], [1, INF, 1], [1, 1, INF], [NAN, NAN, 0], [NAN, 0.5, NAN]),
        # NaN is stronger: there is no row at all.
        ([INF, NAN, 2.0], [1, 1, 1], [1, 1, 1], [NAN] * 3, [NAN] * 3),
        # Of finite rows, infinities have the sign of x.
        ([-1.0, 0.0, 1.0], [INF, INF, 1], [1, 1, INF], [-INF, NAN, None], [None, None, INF]),
    ],
)
def test_numbers_that_are_not_finite(
    x: list[float], gamma: list[float], dy: list[float], y: list[Any], dgamma: list[Any]
) -> None:
    found = expected(_case([x, ROW], gamma, [dy, [1, 1, 1]]))
    for output, right in (("y", y), ("dgamma", dgamma)):
        values = found.wide[output][0] if output == "y" else found.wide[output]
        for value, wanted in zip(values, right, strict=True):
            assert wanted is None or np.array_equal(value, wanted, equal_nan=True), output
    finite = np.isfinite([x, dy]).all() and np.isfinite(gamma).all()
    assert np.isnan(found.wide["dx"][0]).all() == (not finite)
    assert np.isfinite(found.wide["dx"][1]).all() == np.isfinite(gamma).all()
    zeros = found.wide["y"][0][found.wide["y"][0] == 0]
    assert not np.signbit(zeros).any()
    assert np.isfinite(found.allowed("y")).all()


def test_a_row_of_zeros() -> None:
    found = expected(_case([[0.0, 0.0], [3.0, 4.0]], [2, -5], [[1, 2], [0, 0]], eps=0.25))
    assert found.wide["y"][0].tolist() == [0, 0]
    assert found.wide["dx"][0].tolist() == [2 * 2, -10 * 2]
    assert found.wide["dgamma"].tolist() == [0, 0]
    without = expected(_case([[0.0, 0.0], [3.0, 4.0]], [2, -5], [[1, 2], [0, 0]], eps=0.0))
    assert np.isnan(without.wide["y"][0]).all()
    assert np.isnan(without.wide["dgamma"]).all()
    assert np.isfinite(without.wide["y"][1]).all()


@pytest.mark.parametrize("x", [[[2.0]], [[3.0, -1.0, 4.0]]])
def test_dx_cancels_down_to_eps_where_x_is_along_g(x: list[list[float]]) -> None:
    eps = 2.0**-20
    found = expected(_case(x, [1.0] * len(x[0]), x, eps))
    w = np.mean(np.square(x)) + eps
    assert found.wide["dx"] == pytest.approx(np.array(x) * eps / w**1.5, rel=1e-14)


def test_scales_by_hand() -> None:
    # mean(x^2) = 1, eps 3: w = 4, r = 1/2, xhat = +-1/2, rho = 1/2; g = 2, -6 and G = sqrt(20)
    found = expected(_case([[1.0, -1.0]], [2, 2], [[1, -3]]))
    assert found.scale("y") == pytest.approx(np.full((1, 2), 1.0))
    assert found.scale("dgamma") == pytest.approx(np.array([0.5, 1.5]))
    along = math.sqrt(20) / 4
    assert found.scale("dx") == pytest.approx(np.array([[2 + along, 6 + along]]) / 2)


def test_no_power_of_kappa_explains_anything() -> None:
    found = expected(_case([[1e6, 1e6 + 2.0]], [2, 2], [[1, -3]]))
    assert found.scales.kappa.tolist() == [[1.0]]
    for output in ("y", "dx", "dgamma"):
        assert (found.scale(output, 2) == found.scale(output)).all()


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bound_is_a_number(dtype: str) -> None:
    for case in cases(dtype, "quick", ["zero-eps", "no-gamma"], operation=RMS_NORM):
        found = expected(case)
        for output in found.types:
            bound = found.allowed(output)
            assert np.isfinite(bound).all()
            assert (bound >= 0).all()
