"""Partials of the same rows are equal to the byte, whatever the split, and round to the answer."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from partials.batches import NARROW, drawn_cases, merged_at_random, nasty_cases, partial_of
from partials.definition import Expected
from promise.checking import BACKENDS, both_passes, bytes_of, forward_pass
from promise.families import Case
from promise.oracle import correct_backward

SHAPES = ((1, 1), (3, 2), (9, 7), (12, 67), (5, 130))


def _batches(dtype: np.dtype[Any], every: int) -> Iterator[tuple[int, Case]]:
    """Yield cases, each with how many random trees are asked of it."""
    drawn = list(drawn_cases(dtype, 500))
    nasty = [case for rows, size in SHAPES for case in nasty_cases(dtype, rows, size, 28)]
    for k, case in enumerate([*nasty, *drawn]):
        if k % every == 0:
            yield 8 if k < len(nasty) else 4, case


def _of_random_parts(
    case: Case, random: np.random.Generator, backends: tuple[str, ...]
) -> tn.PartialGradients:
    """Permute the rows, split them, let any backend do any part, and merge in any tree."""
    order = random.permutation(len(case.x))
    cuts = np.unique(random.integers(0, len(order) + 1, random.integers(0, 5)))
    parts = []
    for part in np.split(order, cuts):  # some of them empty
        forward, backward = random.choice(backends, 2)
        threads = int(random.integers(1, 3))
        parts.append(partial_of(case.rows(part), backward, forward=forward, threads=threads))
    return merged_at_random(parts, random)


def _check_trees(dtype: np.dtype[Any], every: int, backends: tuple[str, ...]) -> int:
    random = np.random.default_rng(3)
    trees = 0
    for count, case in _batches(dtype, every):
        expected = Expected(case).to_bytes()
        for backend in backends:
            assert partial_of(case, backend).tobytes() == expected, (backend, str(case))
        for _ in range(count):
            merged = _of_random_parts(case, random, backends)
            assert merged.tobytes() == expected, str(case)
            trees += 1
    return trees


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_any_tree_of_any_split_has_the_bytes_of_the_definition(dtype: np.dtype[Any]) -> None:
    """One tree in eight of what the session `slow` grows."""
    assert _check_trees(dtype, 8, BACKENDS) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_2000_trees(dtype: np.dtype[Any]) -> None:
    assert _check_trees(dtype, 1, BACKENDS) >= 2000


def _check_rounded(case: Case, backends: tuple[str, ...]) -> int:
    """Hold what a partial rounds to against plain backward and the judge; count what is left."""
    right = correct_backward(
        case.dy, case.x, case.gamma, case.beta, case.eps, centred=case.centred
    )
    left = 0
    for backend in backends:
        partial = partial_of(case, backend)
        dgamma, dbeta, undecided = partial.rounded()
        refined = partial.refine([(case.dy, forward_pass(case, backend)[1])])
        assert len(refined.undecided) == 0
        assert bytes_of(*refined[:2]) == bytes_of(*right[1:]), (backend, str(case))
        assert bytes_of(*both_passes(case, backend)[2:]) == bytes_of(*right[1:])
        assert bytes_of(dbeta) == bytes_of(right[2])
        if dgamma is not None and right[1] is not None:
            decided = np.delete(np.arange(len(dgamma)), undecided)
            assert bytes_of(dgamma[decided]) == bytes_of(right[1][decided]), (backend, str(case))
        left += len(undecided)
    return left


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_what_is_decided_is_right_and_the_rest_can_be_refined(dtype: np.dtype[Any]) -> None:
    assert sum(_check_rounded(case, BACKENDS) for _, case in _batches(dtype, 8)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_what_all_batches_round_to(dtype: np.dtype[Any]) -> None:
    assert sum(_check_rounded(case, BACKENDS) for _, case in _batches(dtype, 1)) > 100
