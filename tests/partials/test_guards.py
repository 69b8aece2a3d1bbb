"""Faults that are planted are seen: a wrong place, a dropped carry, a bin that is too full."""

from typing import Any

import numpy as np
import pytest

import truenorm as tn
from partials.batches import nasty_cases, partial_of
from partials.definition import Expected
from promise.checking import BACKENDS
from promise.families import Case, usual_case
from truenorm.kernels import fixed_point
from truenorm.kernels import fixed_point as lattice_units
from truenorm.kernels.reference import columns
from truenorm.partials import gradients

FLOAT32 = np.dtype(np.float32)


def _is_right(case: Case, backend: str = "reference") -> bool:
    return partial_of(case, backend).tobytes() == Expected(case).to_bytes()


@pytest.mark.parametrize("change", [-1, 1, -32])
def test_a_wrong_place_of_a_row_is_seen(change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one row only."""
    case = usual_case("normal", 3, 5, FLOAT32)
    assert _is_right(case)
    original = lattice_units.units

    def wrong(*arguments: Any) -> Any:
        found = original(*arguments)
        found[1] += change
        return found

    monkeypatch.setattr(columns, "units", wrong)
    assert not _is_right(case)


def test_a_dropped_carry_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    case = usual_case("normal", 9, 5, FLOAT32)
    parts = [partial_of(case.rows(part), "reference") for part in (slice(4), slice(4, 9))]
    whole = Expected(case).to_bytes()
    assert (parts[0] + parts[1]).tobytes() == whole
    original = fixed_point.canonical

    def without_last_carry(first: int, places: Any) -> Any:
        carried = original(first, places.copy())
        carried.limbs[-1] = places[carried.first - first + len(carried.limbs) - 1]
        return carried

    monkeypatch.setattr(gradients, "CORE", None)
    monkeypatch.setattr(fixed_point, "canonical", without_last_carry)
    assert (parts[0] + parts[1]).tobytes() != whole


def test_a_carry_goes_through_all_places() -> None:
    """2**31 - 1 and ones above, plus one: what was one digit is five."""
    ones = np.array([[2**31 - 1], *[[2**31 - 1]] * 3], np.int64)
    number = fixed_point.FixedPoint(-2, ones).plus(
        fixed_point.FixedPoint(-2, np.array([[1]], np.int64))
    )
    total = sum((2**31 - 1) << 32 * k for k in range(4)) + 1
    assert number.integers(np.array([0])) == [total]
    assert number.limbs.ravel().tolist()[:2] == [-(2**31), -(2**31)]
    back = number.plus(fixed_point.FixedPoint(-2, -ones))
    assert back.first == -2
    assert back.limbs.tolist() == [[1]]


def full_rows(count: int) -> Case:
    """Return rows whose terms are nearly as large as they get, and have all their bits.

    xhat is just below sqrt(D), and dy just below 1.
    """
    x = np.tile(np.array([1, 0.03, 0, 0], np.float32), (count, 1))
    dy = np.full((count, 4), 1 - 2.0**-24, np.float32)
    return Case("full", x, np.ones(4, np.float32), None, dy, 0.0, centred=False)


def _times(partial: tn.PartialGradients, power: int) -> tn.PartialGradients:
    for _ in range(power):
        partial = partial + partial
    return partial


@pytest.mark.parametrize("backend", BACKENDS)
def test_bins_are_cleared_before_they_overflow(backend: str) -> None:
    """16,384 rows of one unit: four times what a bin holds, twice what a float64 would."""
    one = partial_of(full_rows(1), backend)
    assert one.tobytes() == Expected(full_rows(1)).to_bytes()
    assert partial_of(full_rows(2**14), backend).tobytes() == _times(one, 14).tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_units_than_bins(backend: str) -> None:
    """Twenty units in turn, thousands of rows: bins are cleared all the time."""
    random = np.random.default_rng(0)
    x = random.standard_normal((20, 6)).astype(np.float32)
    dy = (random.standard_normal((20, 6)) * 8.0 ** np.arange(20)[:, None]).astype(np.float32)
    case = Case("units", x, np.ones(6, np.float32), None, dy, 1e-5)
    one = partial_of(case, backend)
    assert one.tobytes() == Expected(case).to_bytes()
    many = case.rows(random.permutation(np.repeat(np.arange(20), 2**8)))
    assert partial_of(many, backend).tobytes() == _times(one, 8).tobytes()


def test_a_bin_without_a_limit_would_lose_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the guard is for: rows beyond it, added as numbers, are no longer exact."""
    # An odd number of rows: else their sums could have their last bits to spare.
    case = full_rows(2**14 + 1)
    right = partial_of(case, "reference")
    monkeypatch.setattr(columns, "PAIR_BLOCK", 2**20)
    assert partial_of(case, "reference") == right
    monkeypatch.setattr(columns, "MOST_ROWS", 2**20)
    assert partial_of(case, "reference") != right


def test_rows_of_one_element() -> None:
    """Centred they have no terms; else xhat is nearly a sign."""
    for case in nasty_cases(FLOAT32, 5, 1, 14):
        for backend in BACKENDS:
            assert _is_right(case, backend), str(case)
