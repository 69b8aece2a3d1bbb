"""The promise: every result is the exact answer, rounded once, compared as bit patterns.

Against the judge of `oracle`, which shares no code with the package. Random rows do not see a
wrong bound, so there are families of difficult rows here, and cases constructed to lie beside a
rounding boundary in `hard_cases`. The judge is slow: it is asked once for each case, and every
backend that can be used is held against what it says.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from kinds import SETS_AND_TYPES
from promise.families import DTYPES, EPSILONS, X_FAMILIES, Case
from promise.formats import bits
from promise.judging import BACKENDS, OUTPUTS, both_passes, compare, expected_results, judge
from promise.suites import WIDTHS, cases, cases_from_anywhere, each_family_alike


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_families_are_complete_finite_and_the_same_every_time(dtype: np.dtype[Any]) -> None:
    made = list(cases(dtype, 30_000))
    assert 30_000 <= sum(case.x.size for case in made) < 40_000
    assert {case.x.shape[1] for case in made} == set(WIDTHS)
    assert {case.eps for case in made} == set(EPSILONS)
    assert {str(case).split()[1] for case in made} == set(X_FAMILIES)
    # dgamma of many rows, and of rows that cancel, is there to be looked at.
    summed = [case for case in made if case.gamma is not None and case.beta is not None]
    assert max(len(case.x) for case in summed) == 1000
    assert {"mirrored", "mirrored_doubled"} <= {str(case).split()[1] for case in summed}
    for case, again in zip(made, cases(dtype, 30_000), strict=True):
        for name in ("x", "gamma", "beta", "dy"):
            one, two = getattr(case, name), getattr(again, name)
            if one is not None:
                assert np.isfinite(one.astype(np.float64)).all(), str(case)
                assert bits(one).tolist() == bits(two).tolist(), str(case)


@pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)
def test_families(backends: Sequence[str], dtype: np.dtype[Any]) -> None:
    """More than 75,000 elements for each type, 300,000 in all."""
    compared = 0
    for case in cases(dtype, 31_000):
        count, wrong = judge(case, backends=backends)
        compared += count
        assert not wrong, wrong
    assert compared >= 75_000


# All types have every family above; in the gate one has them alike, too.
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(each, marks=() if each == "float32" else pytest.mark.slow) for each in DTYPES],
    ids=str,
)
def test_each_family_alike(dtype: np.dtype[Any]) -> None:
    """The mixture above gives a family few elements at a usual eps; here each has its share."""
    for case in each_family_alike(dtype):
        _, wrong = judge(case)
        assert not wrong, wrong


@pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)
@pytest.mark.parametrize("count", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_numbers_from_anywhere_in_the_range(
    count: int, backends: Sequence[str], dtype: np.dtype[Any]
) -> None:
    """Huge and tiny numbers in one row, with parameters that bring either to light."""
    for case in cases_from_anywhere(dtype, count):
        _, wrong = judge(case, backends=backends)
        assert not wrong, wrong


def test_float64_zeros_are_not_taken_for_the_mean(backend: str) -> None:
    """The sum of this row is not exact in float64, and its first element not its mean."""
    x = np.array([[0.0, -(2.0**1023), 2.0**1023, 1.0]])
    y = tn.layer_norm(x, np.full(4, 2.0**1023), backend=backend)
    assert y[0, 0] == -0.3535533905932738


@pytest.mark.parametrize("output", OUTPUTS)
def test_one_wrong_bit_is_seen(backend: str, output: str) -> None:
    """Of any backend and output, and it is said where."""
    case = next(cases(np.float32, 0))
    expected = expected_results(case)
    results = [None if array is None else array.copy() for array in expected]
    count, wrong = compare(case, results, expected, OUTPUTS, backend)
    assert count == sum(array.size for array in results if array is not None)
    assert not wrong
    changed = results[OUTPUTS.index(output)]
    assert changed is not None
    changed.view(np.uint8).flat[-4] ^= 1
    _, (found,) = compare(case, results, expected, OUTPUTS, backend)
    assert (found.backend, found.output, found.elements) == (backend, output, 1)
    assert found.first == tuple(length - 1 for length in changed.shape)


def test_every_backend_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(cases(np.float32, 0))
    asked = []

    def noted(case: Case, backend: str | None = None) -> Any:
        asked.append(backend)
        return both_passes(case, backend)

    monkeypatch.setattr("promise.judging.both_passes", noted)
    judge(case)
    assert asked == list(BACKENDS)
    assert "reference" in BACKENDS
