"""The promise of RMSNorm: the same families and judge as for layer norm, and where dx cancels."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kinds import SETS_AND_TYPES
from promise.families import EPSILONS, X_FAMILIES, Case, usual_case
from promise.judging import both_passes, bytes_of, judge
from promise.suites import cases, cases_from_anywhere, each_family_alike, not_finite_cases

Names = tuple[str, ...]
pytestmark = pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)


def assert_right(case: Case, backends: Names) -> int:
    count, wrong = judge(case.of_rms_norm(), backends=backends)
    assert not wrong, wrong
    return count


@pytest.mark.parametrize("budget", [13_785, pytest.param(31_000, marks=pytest.mark.slow)])
def test_families(backends: Names, dtype: np.dtype[Any], budget: int) -> None:
    compared = sum(assert_right(case, backends) for case in cases(dtype, budget))
    assert compared >= 2 * budget


@pytest.mark.slow
def test_each_family_alike(backends: Names, dtype: np.dtype[Any]) -> None:
    for case in each_family_alike(dtype):
        assert_right(case, backends)


@pytest.mark.parametrize("count", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_numbers_from_anywhere_in_the_range(
    backends: Names, dtype: np.dtype[Any], count: int
) -> None:
    for case in cases_from_anywhere(dtype, count):
        assert_right(case, backends)


def test_what_is_not_finite(backends: Names, dtype: np.dtype[Any]) -> None:
    """Infinities in x, gamma and dy, with and without NaN: by the table of docs/derivation.md."""
    spared = 0
    for case in not_finite_cases(dtype, 60, (1, 2, 7), (1, 2, 5, 17)):
        assert_right(case, backends)
        values = case.x.astype(np.float64)
        spared += int((np.isinf(values).any(axis=1) & ~np.isnan(values).any(axis=1)).sum())
    assert spared > 10  # rows of which something is left beside infinities


def parallel_cases(dtype: np.dtype[Any]) -> Iterator[Case]:
    """Yield rows with dy = x/2 or -2*x, of which all but a part eps/w cancels; and D = 1."""
    for k, family in enumerate(X_FAMILIES):
        for size, factor in ((1, 0.5), (7, -2.0), (67, 0.5)):
            eps = EPSILONS[(k + size) % len(EPSILONS)]
            case = usual_case(family, 3, size, dtype, seed=k)
            with np.errstate(all="ignore"):
                dy = (case.x.astype(np.float64) * factor).astype(dtype)
            dy[~np.isfinite(dy.astype(np.float64))] = 0
            yield replace(case, gamma=None, dy=dy, eps=eps)


def test_dx_cancels_down_to_eps(backends: Names, dtype: np.dtype[Any]) -> None:
    """Where x is parallel to g, (D31) and (D32)."""
    for case in parallel_cases(dtype):
        assert_right(case, backends)


def test_same_bits_on_one_thread_and_on_two(backends: Names, dtype: np.dtype[Any]) -> None:
    case = usual_case("normal", 700, 67, dtype).of_rms_norm()
    for backend in backends:
        one, two = (bytes_of(*both_passes(case, backend, threads=count)) for count in (1, 2))
        assert one == two
