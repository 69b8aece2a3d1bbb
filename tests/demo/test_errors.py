"""Errors agree with fractions that share no code with the package."""

from fractions import Fraction
from itertools import chain

import numpy as np
import pytest

from exact_row import ExactRow, exact_dgamma, exact_dx, exact_y, fractions
from truenorm.demo.algorithms import Results, errors_of, run
from truenorm.verify.operation import Case
from truenorm.verify.operations import layer_norm_case

EPS = 1e-5


def case(dtype: str, offset: float) -> Case:
    random = np.random.default_rng(5)
    x, dy = (offset * k + random.standard_normal((3, 7)) for k in (1, 0))
    gamma, beta = random.standard_normal((2, 7))
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case("small", (x, gamma, beta, dy), EPS)


@pytest.mark.parametrize(("dtype", "offset"), [("float32", 1e3), ("float64", 1e9)])
def test_largest_errors_in_ulp(dtype: str, offset: float) -> None:
    given = case(dtype, offset)
    assert given.gamma is not None
    assert given.beta is not None
    results = run("two-pass (textbook)", given)
    exact = {
        "variance": [ExactRow.of(fractions(row), Fraction(0)).w for row in given.x],
        "y": [*chain(*exact_y(given.x, given.gamma, given.beta, EPS))],
        "dx": [*chain(*exact_dx(given.x, given.gamma, given.dy, EPS))],
        "dgamma": exact_dgamma(given.x, given.dy, EPS),
    }
    found = errors_of(given, results)
    for output, answers in exact.items():
        values = fractions(getattr(results, output).ravel())
        rounded = np.array([float(answer) for answer in answers]).astype(dtype)
        ulps = fractions(np.spacing(np.abs(rounded)))
        apart = [abs(a - b) / ulp for a, b, ulp in zip(values, answers, ulps, strict=True)]
        assert found[output].ulp == pytest.approx(float(max(apart)), rel=1e-9)


def test_the_variance_is_measured_relative_to_itself() -> None:
    given = case("float64", 1e9)
    variance = np.array([ExactRow.of(fractions(row), Fraction(0)).w for row in given.x], float)
    results = run("two-pass (textbook)", given)._replace(variance=variance * [1, 1.25, 1])
    assert errors_of(given, results)["variance"].relative == pytest.approx(0.25, rel=1e-12)


def test_y_is_measured_relative_to_what_it_is_made_of() -> None:
    """With xhat = -1, 1 and gamma = 3, beta = 5: |gamma|(|xhat| + rho) + |beta| is 11."""
    x, gamma, beta = np.array([[-1.0, 1.0]]), np.full(2, 3.0), np.full(2, 5.0)
    given = layer_norm_case("", (x, gamma, beta, x), 0.0)
    results = run("two-pass (textbook)", given)
    off = results._replace(y=results.y + np.array([0.0, 0.11]))
    assert errors_of(given, off)["y"].relative == pytest.approx(0.01, rel=1e-12)


def with_one(results: Results, value: float) -> Results:
    """Return them with one element of each replaced."""
    wrong = [None if each is None else each.copy() for each in results]
    for each in wrong:
        if each is not None:
            each.flat[1] = value
    return Results._make(wrong)


@pytest.mark.parametrize(("value", "error"), [(np.nan, np.nan), (-np.inf, np.inf)])
def test_one_wrong_number_is_the_error(value: float, error: float) -> None:
    given = case("float32", 1.0)
    wrong = with_one(run("two-pass (textbook)", given), value)
    for found in errors_of(given, wrong).values():
        np.testing.assert_equal(found, (error, error))


def test_the_variance_of_a_constant_row_is_right_or_infinitely_wrong() -> None:
    x = np.ones((1, 4), np.float32)
    given = layer_norm_case("", (x, x[0], x[0], x), EPS)
    results = run("two-pass (textbook)", given)
    assert errors_of(given, results)["variance"] == (0.0, 0.0)
    off = results._replace(variance=np.array([2.0**-149], np.float32))
    assert errors_of(given, off)["variance"] == (np.inf, 1.0)
