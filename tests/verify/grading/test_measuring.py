"""An error is measured from the exact answer, and nothing that is not finite is ever near."""

import numpy as np
import pytest

from truenorm.verify.grading.errors import UNEXPLAINED, measure, misplaced
from truenorm.verify.oracle import Expected, expected
from truenorm.verify.suite import case
from truenorm.verify.types import Array


@pytest.fixture
def plain() -> Expected:
    return expected(case("float32-normal-4x17"))


def _y(found: Expected) -> Array:
    value = found.values["y"]
    assert value is not None
    return value.copy()


def test_the_next_number_is_farther_than_the_right_one(plain: Expected) -> None:
    y = _y(plain)
    error = measure(plain, "y", y)
    assert error.ulp <= 0.5
    assert (error.natural, error.needs) == (0.0, 0)
    y[1, 2] = np.nextafter(y[1, 2], np.float32(np.inf))
    error = measure(plain, "y", y)
    assert 0.5 < error.ulp < 1.5
    assert error.needs == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_never_near(plain: Expected, value: float) -> None:
    y = _y(plain)
    y[3, 5] = value
    error = measure(plain, "y", y)
    assert (error.ulp, error.natural, error.needs) == (np.inf, np.inf, UNEXPLAINED)
    assert (error.at, error.not_finite) == ((3, 5), True)
    assert measure(plain, "y", y, finite=False).needs == 0  # the guard that is switched off


def test_the_worst_element_is_named(plain: Expected) -> None:
    y = _y(plain)
    y[2, 7] += 1
    y[0, 3] += 0.1
    error = measure(plain, "y", y)
    assert (error.at, error.needs, error.not_finite) == ((2, 7), UNEXPLAINED, False)


def test_beside_an_exact_zero_an_ulp_is_no_measure() -> None:
    """In float64 the distance to 0, in ulp, may be beyond every number; it is still small."""
    found = expected(case("float64-dy-constant"))
    dx = found.wide["dx"] + 1e-16
    assert measure(found, "dx", dx).needs == 0


def test_nan_must_be_where_it_belongs() -> None:
    given = case("float32-nan-in-x")
    found = expected(given)
    y = _y(found)
    row = int(np.flatnonzero(np.isnan(given.x).any(axis=1))[0])
    assert misplaced(found, "y", y) is None
    y[row] = np.inf
    assert misplaced(found, "y", y) is None
    y[row, 4] = 0
    assert misplaced(found, "y", y) == (row, 4)


def test_an_infinity_of_the_other_sign_is_wrong() -> None:
    found = expected(case("float32-infinity-and-nan-in-dy"))
    dbeta = found.wide["dbeta"].copy()
    spot = int(np.flatnonzero(np.isinf(dbeta))[0])
    assert misplaced(found, "dbeta", dbeta) is None
    dbeta[spot] *= -1
    assert misplaced(found, "dbeta", dbeta) == (spot,)
