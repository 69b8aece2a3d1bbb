"""What is planted in the source is found: by other bits, or by a complaint."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fibers.runs import by_reference, launcher_on, on
from fibers.runtime import ComplaintError, Fibers
from fibers.test_fibers import case_of
from promise.families import Case
from truenorm.kernels.gpu.plan import source_of

FOUR_WARPS = case_of("float32", True, 12, 1024)
BY_SHUFFLES = re.compile(r"#ifdef EXCHANGE\n.*?#else", re.DOTALL)
SUMS_OF = {"forward": 0, "forward_again": -1}
"""Kernels, and which sum over a team is theirs alone: the first of the source, or the last."""

Mutation = Callable[[str], str]


def sum_of(kernel: str, source: str) -> str:
    """Return the sum over a team, as the dialects with shuffles have it."""
    return str(BY_SHUFFLES.findall(source)[SUMS_OF[kernel]])


def replaced(old: str, new: str) -> Mutation:
    """Return what plants a bug in one place."""

    def mutation(source: str) -> str:
        assert old in source
        return source.replace(old, new, 1)

    return mutation


def without_barrier(kernel: str, number: int) -> Mutation:
    """Return what removes a barrier from a sum over a team."""

    def mutation(source: str) -> str:
        before = sum_of(kernel, source)
        parts = before.split("BARRIER;")
        after = "BARRIER;".join(parts[: number + 1]) + "BARRIER;".join(parts[number + 1 :])
        return source.replace(before, after)

    return mutation


def bits_of(runtime: Fibers, kernel: str = "forward", case: Case = FOUR_WARPS) -> list[bytes]:
    """Return y, and what else a kernel of forward writes."""
    launcher, count = launcher_on(runtime, case), len(case.x)
    x, y, kept = runtime.upload(case.x), runtime.empty(case.x.nbytes), runtime.empty(24 * count)
    if kernel == "forward":
        others = [kept, launcher.forward(x, y, kept, count)]
    else:
        others = [launcher.forward_again(x, y, np.arange(count))]
    return [each.inside.tobytes() for each in (y, *others)]


right_bits = cache(lambda kernel: bits_of(Fibers(0), kernel))


def left_to_slow(*names: str) -> list[Any]:
    """Return names as parameters, the first of them for the gate."""
    return [
        pytest.param(each, marks=pytest.mark.slow if k else ()) for k, each in enumerate(names)
    ]


def is_found(mutation: Mutation, seeds: Iterable[int], kernel: str = "forward") -> bool:
    """Tell whether the bits of some schedule are not the right ones."""
    return any(bits_of(Fibers(seed, mutation), kernel) != right_bits(kernel) for seed in seeds)


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("kernel", left_to_slow(*SUMS_OF))
def test_a_dropped_barrier_is_found(kernel: str, number: int) -> None:
    assert sum_of(kernel, source_of(kernel)).count("BARRIER;") == 2
    assert is_found(without_barrier(kernel, number), range(4), kernel)


AROUND_SHARED = (
    ("BARRIER;\n        scratch[THREAD] = of_beta.high", "scratch[THREAD] = of_beta.high"),
    ("= of_beta.low;\n        BARRIER;", "= of_beta.low;"),
)


def columns_of(runtime: Fibers, case: Case = FOUR_WARPS) -> bytes:
    """Return the sums over rows, in pairs, of some columns."""
    launcher, sums = launcher_on(runtime, case), runtime.zeros(5 * case.x.shape[1] * 8)
    dy, x = runtime.upload(case.dy), runtime.upload(case.x)
    launcher.columns_again(dy, x, sums, np.array([1, 1023, 6]), len(case.x))
    return bytes(sums.inside)


@pytest.mark.slow
@pytest.mark.parametrize("dropped", AROUND_SHARED, ids=["before", "after"])
def test_a_dropped_barrier_of_columns_is_found(dropped: tuple[str, str]) -> None:
    def mutation(source: str) -> str:
        return replaced(*dropped)(source) if "of_beta.high" in source else source

    right = columns_of(Fibers(0))
    assert columns_of(Fibers(1)) == right
    assert any(columns_of(Fibers(seed, mutation)) != right for seed in range(8))


WRONG_SUMS = {
    "offset": ("offset = LANES / 2", "offset = LANES / 4"),
    "lane": ("EXCHANGE(a.half[1], offset)", "EXCHANGE(a.half[1], offset ^ 1)"),
    "slot": ("WARPS + THREAD / LANES]", "WARPS + WARPS - 1 - THREAD / LANES]"),
}


@pytest.mark.parametrize("name", left_to_slow(*WRONG_SUMS))
def test_a_wrong_sum_is_found(name: str) -> None:
    assert is_found(replaced(*WRONG_SUMS[name]), [0])


DIVERGENCES = {
    "a barrier": ("EACH_ROW(rows) {", "if (THREAD > 95) return; else EACH_ROW(rows) {"),
    "a shuffle": ("a[q] += from_lane(", "if (THREAD != 7) a[q] += from_lane("),
    "different shuffles": ("offset = LANES / 2", "offset = LANES / (THREAD ? 2 : 4)"),
    "beside a buffer": ("kept[3 * row] =", "kept[3 * row - 40] ="),
}


@pytest.mark.parametrize("said", left_to_slow(*DIVERGENCES))
def test_divergence_is_reported(said: str) -> None:
    with pytest.raises(ComplaintError, match=said):
        bits_of(Fibers(0, replaced(*DIVERGENCES[said])))


@pytest.mark.parametrize(
    "shape", [(40, 1024), pytest.param((9, 4101), marks=pytest.mark.slow)], ids=str
)
def test_large_arrays(shape: tuple[int, int]) -> None:
    """More than 2^31 elements by proxy: what counts them has 32 bits and all else 16.

    With 64 and 32 bits, as ever, the same would be too much memory.
    """
    case = case_of("float32", True, *shape)
    assert case.x.size > 2**15 > case.x.shape[1]
    assert on(Fibers(0, INDEX="int", SMALL="short"), case) == on(Fibers(0), case)


@pytest.mark.slow
def test_large_arrays_of_columns() -> None:
    case = case_of("float32", True, 40, 1024)
    right = columns_of(Fibers(0), case)
    wrong = replaced("LOAD(x[row * SIZE + column])", "LOAD(x[(small_t)(row * SIZE + column)])")
    assert columns_of(Fibers(0, INDEX="int", SMALL="short"), case) == right
    assert columns_of(Fibers(0, wrong, INDEX="int", SMALL="short"), case) != right


SHORT_OFFSETS = {
    "load and store": ("(index_t)(row) * SIZE", "(small_t)((row) * SIZE)"),
    "first element": ("x[row * SIZE]", "x[(small_t)(row * SIZE)]"),
}


@pytest.mark.parametrize("name", left_to_slow(*SHORT_OFFSETS))
def test_a_short_offset_is_found(name: str) -> None:
    case = case_of("float32", True, 40, 1024)
    short = Fibers(0, replaced(*SHORT_OFFSETS[name]), INDEX="int", SMALL="short")
    assert bits_of(short, case=case) != bits_of(Fibers(0), case=case)


def test_a_mean_that_leaves_the_range_is_not_used() -> None:
    """Distances from the first element add up to infinity: any element will do (H2)."""
    usual = case_of("float32", True, 5, 67)
    case = replace(usual, x=(np.sign(usual.x) * np.float32(3e38)).astype(np.float32))
    assert on(Fibers(0), case) == by_reference(case)
    guard = "near - near == 0.f ? near : of_first"
    without = replaced(guard, "near")
    assert bits_of(Fibers(0, without), case=case) != bits_of(Fibers(0), case=case)
