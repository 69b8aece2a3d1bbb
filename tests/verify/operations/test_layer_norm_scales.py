"""The natural scales, on rows where they can be worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest

from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case
from truenorm.verify.oracle import expected
from truenorm.verify.suite import cases
from truenorm.verify.types import FORMATS


def _case(x: list[list[float]], dy: list[list[float]], eps: float = 3.0) -> Case:
    rows = np.array(x)
    parameters = np.full(rows.shape[1], 2.0), np.full(rows.shape[1], 0.5)
    return layer_norm_case("by hand", (rows, *parameters, np.array(dy)), eps)


def test_scales_by_hand() -> None:
    # mean 5, var 1, eps 3: w = 4, r = 1/2, xhat = +-1/2, rho = 1/2, kappa = sqrt(26)/2
    case = _case([[4.0, 6.0]], [[1.0, -3.0]])
    found = expected(case)
    assert found.scales.kappa[0, 0] == pytest.approx(math.sqrt(26) / 2)
    assert found.scale("y") == pytest.approx(np.full((1, 2), 2 * (0.5 + 0.5) + 0.5))
    assert found.scale("dgamma") == pytest.approx(np.array([1.0, 3.0]))
    assert found.scale("dbeta") == pytest.approx(np.array([1.0, 3.0]))
    # g = 2, -6: mean|g| = 4, G = sqrt(20), rho(rho + |xhat|) = 1/2
    along = math.sqrt(20) / 2
    assert found.scale("dx") == pytest.approx(np.array([[2 + 4 + along, 6 + 4 + along]]) / 2)


def test_a_power_of_kappa_lets_errors_grow() -> None:
    case = _case([[1e6, 1e6 + 2.0]], [[1.0, -3.0]])
    found = expected(case)
    kappa = float(found.scales.kappa[0, 0])
    for output in ("y", "dx", "dgamma"):
        plain, once, twice = (found.scale(output, power).max() for power in range(3))
        assert once / plain == pytest.approx(kappa, rel=3)
        assert twice / once == pytest.approx(kappa, rel=0.1)
    assert (found.scale("dbeta", 2) == found.scale("dbeta")).all()


def test_a_row_far_below_eps_must_still_be_right() -> None:
    """With |xhat| + 1 for a scale, a result of zeros would pass for a row of 1e-30."""
    case = _case([[1e-30, 2e-30]], [[1.0, 1.0]])
    found = expected(case.with_inputs(beta=np.zeros(2)))
    assert (found.allowed("y") < 1e-3 * np.abs(found.wide["y"])).all()


def test_a_constant_row_must_be_beta() -> None:
    found = expected(_case([[1e6, 1e6, 1e6]], [[1.0, 2.0, 3.0]]))
    assert (found.wide["y"] == 0.5).all()
    assert (found.allowed("y") < 1e-14).all()
    assert (found.allowed("y", 1) > 1e-10).all()


def test_columns_may_be_added_up_one_by_one_from_the_first_power_on() -> None:
    case = _case([[1.0, 2.0]] * 400, [[1.0, 1.0]] * 400)
    found = expected(case)
    assert found.factor("dbeta") == 8 + 20 / 4
    assert found.factor("dbeta", 1) == 408
    assert found.factor("y", 1) == found.factor("y")
    half = replace(case, dtype="float16")
    assert expected(half).factor("dbeta", 1) == 2.0**11 / 8


@pytest.mark.parametrize("dtype", FORMATS)
def test_every_bound_is_a_number(dtype: str) -> None:
    for case in cases(dtype, "quick", ["zero-eps", "no-gamma", "no-beta"]):
        found = expected(case)
        for output in found.types:
            for power in range(3):
                bound = found.allowed(output, power)
                assert np.isfinite(bound).all()
                assert (bound >= 0).all()
