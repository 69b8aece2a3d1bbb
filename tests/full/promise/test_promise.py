"""The promise: every result is the exact answer, rounded once, compared as bit patterns.

Expected values come from `oracle`, which shares no code with the package. Random rows do not
reveal a wrong bound, so this file has families of difficult rows, and `test_hard_cases` has cases
next to rounding boundaries. The oracle is slow: it runs once for each case, and every usable
backend is compared with its answer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import (
    check,
)
from shared.promise.families import (
    DTYPES,
    EPSILONS,
    X_FAMILIES,
    Case,
    cases,
    every_family_cases,
    full_range_cases,
    non_finite_cases,
    usual_case,
)

SLOW = pytest.mark.slow(reason="the oracle takes minutes for all families")

each_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def assert_right(some: Iterable[Case], norm: str = "layer_norm") -> int:
    """Compare every backend with the oracle, and return the number of elements."""
    compared = 0
    for case in some:
        count, wrong = check(case if norm == "layer_norm" else case.as_rms_norm())
        assert not wrong, wrong
        compared += count
    return compared


@each_type
@pytest.mark.parametrize(
    ("norm", "budget", "least"),
    [
        ("layer_norm", 13_785, 32_982),
        ("rms_norm", 13_785, 27_570),
        pytest.param("layer_norm", 50_000, 120_000, marks=SLOW),
        pytest.param("rms_norm", 31_000, 62_000, marks=SLOW),
    ],
)
def test_families(norm: str, budget: int, least: int, dtype: np.dtype[Any]) -> None:
    assert assert_right(cases(dtype, budget), norm) >= least


@pytest.mark.parametrize(
    ("norm", "dtype"),
    [
        pytest.param(
            norm,
            dtype,
            id=f"{norm}-{dtype}",
            # The test above has every family in all types.
            marks=() if norm == "layer_norm" and dtype == "float32" else SLOW,
        )
        for norm in ("layer_norm", "rms_norm")
        for dtype in DTYPES
    ],
)
def test_every_family_at_the_usual_eps(norm: str, dtype: np.dtype[Any]) -> None:
    """Give each family the same number of elements; `cases` has few of them at a usual eps."""
    assert_right(every_family_cases(dtype), norm)


@each_type
@pytest.mark.parametrize(
    ("norm", "count"),
    [
        ("layer_norm", 20),
        ("rms_norm", 20),
        pytest.param("layer_norm", 2000, marks=SLOW),
        pytest.param("rms_norm", 400, marks=SLOW),
    ],
)
def test_full_range(norm: str, count: int, dtype: np.dtype[Any]) -> None:
    """Huge and tiny numbers in one row, with parameters that bring either into range."""
    assert_right(full_range_cases(dtype, count), norm)


@each_type
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_non_finite_entries(norm: str, dtype: np.dtype[Any]) -> None:
    """Infinities and NaN in x, gamma, beta and dy follow the table of docs/learn/derivation.md."""
    made = list(non_finite_cases(dtype, 60, (1, 2, 7), (1, 2, 5, 17)))
    assert_right(made, norm)
    rows = [row for case in made for row in case.x.astype(np.float64)]
    # Rows with infinities and no NaN, of which RMSNorm leaves the finite elements defined.
    assert sum(np.isinf(row).any() and not np.isnan(row).any() for row in rows) > 10


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


@each_type
@pytest.mark.parametrize("norm", ["rms_norm"])
def test_dx_cancels_down_to_eps(norm: str, dtype: np.dtype[Any]) -> None:
    """Where x is parallel to g, (D31) and (D32)."""
    assert_right(parallel_cases(dtype), norm)


def test_float64_mean_of_large_elements_that_cancel(backend: str) -> None:
    """The float64 sum of this row is not exact, and its first element is not its mean."""
    x = np.array([[0.0, -(2.0**1023), 2.0**1023, 1.0]])
    y = tn.layer_norm(x, np.full(4, 2.0**1023), backend=backend)
    assert y[0, 0] == -0.3535533905932738
