"""Partials of the same rows have equal bytes for any split, and planted faults are detected."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.partials.cases import (
    NARROW,
    merge_at_random,
    mixed_cases,
    near_midpoints,
    partial_of,
    promise_cases,
)
from shared.partials.definition import Expected
from shared.promise.checking import BACKENDS, both_passes, bytes_of, forward_pass, on_each_set
from shared.promise.families import Case, usual_case
from shared.promise.oracle import correct_backward
from truenorm.kernels import fixed_point
from truenorm.kernels.reference import columns
from truenorm.partials import gradients

SLOW = pytest.mark.slow(reason="the definition in fractions takes a minute")

FLOAT32 = np.dtype(np.float32)
SHAPES = ((1, 1), (3, 2), (9, 7), (12, 67), (5, 130), (17, 16))


def every_nth_case(dtype: np.dtype[Any], n: int) -> Iterator[tuple[int, Case]]:
    """Yield cases, each with a number of random trees to try."""
    mixed = [case for rows, size in SHAPES for case in mixed_cases(dtype, rows, size, 28)]
    for k, case in enumerate([*mixed, *promise_cases(dtype, 500)]):
        if k % n == 0:
            yield 8 if k < len(mixed) else 4, case


def merge_random_parts(case: Case, seed: int) -> tn.PartialGradients:
    """Permute and split the rows, compute each part on a random backend, merge in any tree."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(case.x))
    cuts = np.unique(random.integers(0, len(order) + 1, random.integers(0, 5)))
    parts = []
    for part in np.split(order, cuts):  # some of them empty
        forward, backward = random.choice(BACKENDS, 2)
        threads = int(random.integers(1, 4))
        parts.append(partial_of(case.rows(part), backward, forward=forward, threads=threads))
    return merge_at_random(parts, random)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(("n", "least"), [(8, 250), pytest.param(1, 2000, marks=SLOW)])
def test_any_tree_of_any_split_has_the_bytes_of_the_definition(
    dtype: np.dtype[Any], n: int, least: int
) -> None:
    trees = 0
    # Trees of parts with each instruction set of the C core take long: of float32 rows only.
    first = BACKENDS[0] if dtype == FLOAT32 else "reference"
    for count, case in every_nth_case(dtype, n):
        expected = Expected(case).to_bytes()
        for backend in BACKENDS:
            for name, partial in on_each_set(backend, partial_of, case, backend).items():
                assert partial.tobytes() == expected, (name, str(case))
        for _ in range(count):
            for name, merged in on_each_set(first, merge_random_parts, case, trees).items():
                assert merged.tobytes() == expected, (name, str(case))
            trees += 1
    assert trees >= least


def count_undecided(case: Case) -> int:
    """Compare rounded and refined gradients with backward and the oracle."""
    expected = correct_backward(
        case.dy, case.x, case.gamma, case.beta, case.eps, centred=case.centred
    )
    total = 0
    for backend in BACKENDS:
        partial = partial_of(case, backend)
        dgamma, dbeta, undecided = partial.rounded()
        refined = partial.refine([(case.dy, forward_pass(case, backend)[1])])
        assert len(refined.undecided) == 0
        assert bytes_of(*refined[:2]) == bytes_of(*expected[1:]), (backend, str(case))
        assert bytes_of(*both_passes(case, backend)[2:]) == bytes_of(*expected[1:])
        assert bytes_of(dbeta) == bytes_of(expected[2])
        if dgamma is not None and expected[1] is not None:
            decided = np.delete(np.arange(len(dgamma)), undecided)
            assert bytes_of(dgamma[decided]) == bytes_of(expected[1][decided]), str(case)
        total += len(undecided)
    return total


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize(("n", "above"), [(8, 10), pytest.param(1, 100, marks=SLOW)])
def test_decided_columns_are_right_and_others_can_be_refined(
    dtype: np.dtype[Any], n: int, above: int
) -> None:
    assert sum(count_undecided(case) for _, case in every_nth_case(dtype, n)) > above


@SLOW
@pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_terms_near_midpoints_are_rounded_correctly(backend: str, *, centred: bool) -> None:
    rows = near_midpoints(np.random.default_rng(8), 11, 2.0**-30, centred=centred)
    for x, dy in islice(rows, 20):
        gamma = np.ones(11, np.float32)
        case = Case("midpoint", x[None], gamma, None, dy[None], 1e-5, centred=centred)
        assert has_right_bytes(case, backend)


def has_right_bytes(case: Case, backend: str = "reference") -> bool:
    return partial_of(case, backend).tobytes() == Expected(case).to_bytes()


@pytest.mark.parametrize("change", [-1, 1, -32])
def test_wrong_unit_of_a_row_is_detected(change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = usual_case("normal", 3, 5, FLOAT32)
    assert has_right_bytes(case)
    original = fixed_point.units

    def wrong(*arguments: Any) -> Any:
        units = original(*arguments)
        units[1] += change
        return units

    monkeypatch.setattr(columns, "units", wrong)
    assert not has_right_bytes(case)


def test_dropped_carry_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    case = usual_case("normal", 9, 5, FLOAT32)
    parts = [partial_of(case.rows(part), "reference") for part in (slice(4), slice(4, 9))]
    whole = Expected(case).to_bytes()
    assert (parts[0] + parts[1]).tobytes() == whole
    original = fixed_point.canonical

    def without_last_carry(first: int, limbs: Any) -> Any:
        carried = original(first, limbs.copy())
        carried.limbs[-1] = limbs[carried.first - first + len(carried.limbs) - 1]
        return carried

    monkeypatch.setattr(gradients, "CORE", None)
    monkeypatch.setattr(fixed_point, "canonical", without_last_carry)
    assert (parts[0] + parts[1]).tobytes() != whole


def test_carry_through_all_limbs() -> None:
    """Add 1 to a number whose limbs are all 2**31 - 1."""
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
    """Return rows with terms close to the largest possible, of full precision.

    xhat is just below sqrt(D), and dy just below 1.
    """
    x = np.tile(np.array([1, 0.03, 0, 0], np.float32), (count, 1))
    dy = np.full((count, 4), 1 - 2.0**-24, np.float32)
    return Case("full", x, np.ones(4, np.float32), None, dy, 0.0, centred=False)


def _double(partial: tn.PartialGradients, power: int) -> tn.PartialGradients:
    for _ in range(power):
        partial = partial + partial
    return partial


@pytest.mark.parametrize("backend", BACKENDS)
def test_bins_are_emptied_before_they_overflow(backend: str) -> None:
    """Sum 16,384 rows of one unit: four times the limit of a bin, twice that of a float64."""
    one = partial_of(full_rows(1), backend)
    assert one.tobytes() == Expected(full_rows(1)).to_bytes()
    assert partial_of(full_rows(2**14), backend).tobytes() == _double(one, 14).tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
def test_more_units_than_bins(backend: str) -> None:
    """Alternate between twenty units over thousands of rows."""
    random = np.random.default_rng(0)
    x = random.standard_normal((20, 6)).astype(np.float32)
    dy = (random.standard_normal((20, 6)) * 8.0 ** np.arange(20)[:, None]).astype(np.float32)
    case = Case("units", x, np.ones(6, np.float32), None, dy, 1e-5)
    one = partial_of(case, backend)
    assert one.tobytes() == Expected(case).to_bytes()
    many = case.rows(random.permutation(np.repeat(np.arange(20), 2**8)))
    assert partial_of(many, backend).tobytes() == _double(one, 8).tobytes()


def test_bins_without_a_limit_lose_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    # An odd number of rows: the last bits of an even sum could be zero.
    case = full_rows(2**14 + 1)
    right = partial_of(case, "reference")
    monkeypatch.setattr(columns, "PAIR_BLOCK", 2**20)
    assert partial_of(case, "reference") == right
    monkeypatch.setattr(columns, "MAX_ROWS", 2**20)
    assert partial_of(case, "reference") != right
