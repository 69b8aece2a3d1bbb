"""The GPU kernels in the CUDA dialect on a CPU, under random schedules.

Their bits equal those of the reference and of OpenCL. Bugs planted in the source are detected.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from shared.fibers.runtime import (
    ComplaintError,
    Fibers,
    Recorder,
    launcher_on,
    opencl_runtime,
    reference_results,
    results_on,
)
from shared.promise.families import DTYPES, Case, usual_case
from truenorm.kernels.gpu.plan import KERNELS, STORAGES, source_of
from truenorm.kernels.gpu.runtime import DeviceArray, widened
from truenorm.kernels.rows import format_of

SLOW = pytest.mark.slow(reason="fibers compute a thousand times slower than a device")

SEEDS = (1, 2)

SHAPES = ((37, 6), (300, 1), (70, 2), (67, 33), (9, 256), (33, 1000), (70, 1024), (17, 3001))
LONG_SHAPES = ((3, 4096), (17, 4100), (2, 4101), (3, 8192), (2, 8193), (3, 20000))
"""Sums in registers, sums by the kernel `run_sums`, and rows that do not fit in registers."""

WITHOUT_SUMS = 4101

QUICK = (("float32", True, (67, 33)), ("bfloat16", False, (17, 1024)))
"""Teams smaller than a warp with rows of odd length, and teams of four warps."""


def case_of(dtype: Any, centred: bool, rows: int, size: int) -> Case:
    case = usual_case("normal", rows, size, dtype)
    return case if centred else case.as_rms_norm()


def cases(*quick: tuple[str, bool, tuple[int, int]]) -> list[Any]:
    """Return all cases; those that are not quick are marked slow."""
    every = {
        (dtype.name, centred, shape)
        for dtype in DTYPES
        if format_of(dtype) in STORAGES
        for centred in (True, False)
        for shape in (*SHAPES, *LONG_SHAPES)
    }
    return [
        pytest.param(
            *key,
            marks=() if key in quick else SLOW,
            id=f"{key[0]}-{'layer' if key[1] else 'rms'}-{key[2][0]}x{key[2][1]}",
        )
        for key in sorted(every | set(quick))
    ]


@pytest.mark.parametrize(("dtype", "centred", "shape"), cases(*QUICK))
def test_same_bits_as_the_reference(dtype: str, centred: bool, shape: tuple[int, int]) -> None:
    case = case_of(dtype, centred, *shape)
    expected = reference_results(case)
    recorders = [Recorder(Fibers(seed)) for seed in SEEDS]
    for each in recorders:
        assert results_on(each, case) == expected
        assert each.launches == recorders[0].launches


@pytest.mark.parametrize(("dtype", "centred", "shape"), cases(QUICK[0]))
def test_same_bits_as_opencl(dtype: str, centred: bool, shape: tuple[int, int]) -> None:
    """Compare everything that kernels write, results and intermediate arrays."""
    case = case_of(dtype, centred, *shape)
    recorders = [Recorder(Fibers(0)), Recorder(opencl_runtime())]
    assert results_on(recorders[0], case) == results_on(recorders[1], case)
    assert recorders[0].launches == recorders[1].launches


@SLOW
def test_every_kernel_gives_the_same_bits() -> None:
    """Include kernels for undecided rows and for arrays on a device."""
    recorders = [Recorder(Fibers(0)), Recorder(opencl_runtime())]
    case = case_of("float32", True, 3, WITHOUT_SUMS)
    for each in recorders:
        results_on(each, case)
        launcher = launcher_on(each, case)
        x, dy, results = each.upload(case.x), each.upload(case.dy), each.empty(case.x.nbytes)
        rows = np.array([2, 0])
        launcher.forward_tier2(x, results, rows)
        launcher.backward_tier2(dy, x, results, rows)
        sums = each.upload(np.random.default_rng(0).standard_normal((5, WITHOUT_SUMS)))
        launcher.columns_tier2(dy, x, sums, np.array([4100, 0, 33]), len(case.x))
        for target in STORAGES:
            gradient = DeviceArray(None, each.empty(4 * WITHOUT_SUMS), (WITHOUT_SUMS,), target)
            for kernel in ("round_dgamma", "round_dbeta"):
                launcher.round_sums(sums, kernel, gradient)
            widened(each, each.upload(case.x[0]), WITHOUT_SUMS, target)
    assert recorders[0].launches == recorders[1].launches
    assert {kernel for kernel, _ in recorders[0].launches} == set(KERNELS)


FOUR_WARPS = case_of("float32", True, 12, 1024)
BY_SHUFFLES = re.compile(r"#ifdef EXCHANGE\n.*?#else", re.DOTALL)
SUMS_OF = {"forward": 0, "forward_tier2": -1}
"""Kernels, and the index of their sum over a team in the source."""

Mutation = Callable[[str], str]


def sum_of(kernel: str, source: str) -> str:
    """Return the code of the sum over a team, for dialects with shuffles."""
    return str(BY_SHUFFLES.findall(source)[SUMS_OF[kernel]])


def replaced(old: str, new: str) -> Mutation:
    """Return a mutation that replaces text in one place."""

    def mutation(source: str) -> str:
        assert old in source
        return source.replace(old, new, 1)

    return mutation


def without_barrier(kernel: str, number: int) -> Mutation:
    """Return a mutation that removes a barrier from a sum over a team."""

    def mutation(source: str) -> str:
        before = sum_of(kernel, source)
        parts = before.split("BARRIER;")
        after = "BARRIER;".join(parts[: number + 1]) + "BARRIER;".join(parts[number + 1 :])
        return source.replace(before, after)

    return mutation


def bits_of(runtime: Fibers, kernel: str = "forward", case: Case = FOUR_WARPS) -> list[bytes]:
    """Return y and everything else that a kernel of forward writes."""
    launcher, count = launcher_on(runtime, case), len(case.x)
    x, y, saved = runtime.upload(case.x), runtime.empty(case.x.nbytes), runtime.empty(24 * count)
    if kernel == "forward":
        others = [saved, launcher.forward(x, y, saved, count)]
    else:
        others = [launcher.forward_tier2(x, y, np.arange(count))]
    return [each.inside.tobytes() for each in (y, *others)]


right_bits = cache(lambda kernel: bits_of(Fibers(0), kernel))


def first_is_quick(*names: str) -> list[Any]:
    """Return names as parameters; all but the first are marked slow."""
    return [pytest.param(each, marks=SLOW if k else ()) for k, each in enumerate(names)]


def is_detected(mutation: Mutation, seeds: Iterable[int], kernel: str = "forward") -> bool:
    """Return True if some schedule gives other bits."""
    return any(bits_of(Fibers(seed, mutation), kernel) != right_bits(kernel) for seed in seeds)


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("kernel", first_is_quick(*SUMS_OF))
def test_a_dropped_barrier_is_detected(kernel: str, number: int) -> None:
    assert sum_of(kernel, source_of(kernel)).count("BARRIER;") == 2
    assert is_detected(without_barrier(kernel, number), range(4), kernel)


AROUND_SHARED = (
    ("BARRIER;\n        scratch[THREAD] = dbeta.high", "scratch[THREAD] = dbeta.high"),
    ("= dbeta.low;\n        BARRIER;", "= dbeta.low;"),
)


def columns_of(runtime: Fibers, case: Case = FOUR_WARPS) -> bytes:
    """Return the sums over rows of some columns, in double-double."""
    launcher, sums = launcher_on(runtime, case), runtime.zeros(5 * case.x.shape[1] * 8)
    dy, x = runtime.upload(case.dy), runtime.upload(case.x)
    launcher.columns_tier2(dy, x, sums, np.array([1, 1023, 6]), len(case.x))
    return bytes(sums.inside)


@SLOW
@pytest.mark.parametrize("dropped", AROUND_SHARED, ids=["before", "after"])
def test_a_dropped_barrier_of_columns_is_detected(dropped: tuple[str, str]) -> None:
    def mutation(source: str) -> str:
        return replaced(*dropped)(source) if "dbeta.high" in source else source

    right = columns_of(Fibers(0))
    assert columns_of(Fibers(1)) == right
    assert any(columns_of(Fibers(seed, mutation)) != right for seed in range(8))


WRONG_SUMS = {
    "offset": ("offset = LANES / 2", "offset = LANES / 4"),
    "lane": ("EXCHANGE(a.half[1], offset)", "EXCHANGE(a.half[1], offset ^ 1)"),
    "slot": ("WARPS + THREAD / LANES]", "WARPS + WARPS - 1 - THREAD / LANES]"),
}


@pytest.mark.parametrize("name", first_is_quick(*WRONG_SUMS))
def test_a_wrong_sum_is_detected(name: str) -> None:
    assert is_detected(replaced(*WRONG_SUMS[name]), [0])


DIVERGENCES = {
    "a barrier": ("EACH_ROW(rows) {", "if (THREAD > 95) return; else EACH_ROW(rows) {"),
    "a shuffle": ("a[q] += from_lane(", "if (THREAD != 7) a[q] += from_lane("),
    "different shuffles": ("offset = LANES / 2", "offset = LANES / (THREAD ? 2 : 4)"),
    "beside a buffer": ("saved[3 * row] =", "saved[3 * row - 40] ="),
}


@pytest.mark.parametrize("complaint", first_is_quick(*DIVERGENCES))
def test_divergence_is_reported(complaint: str) -> None:
    with pytest.raises(ComplaintError, match=complaint):
        bits_of(Fibers(0, replaced(*DIVERGENCES[complaint])))


@pytest.mark.parametrize("shape", [(40, 1024), pytest.param((9, 4101), marks=SLOW)], ids=str)
def test_large_arrays(shape: tuple[int, int]) -> None:
    """More than 2^31 elements by proxy: offsets have 32 bits instead of 64, all else 16.

    With the usual 64 and 32 bits, the test would need too much memory.
    """
    case = case_of("float32", True, *shape)
    assert case.x.size > 2**15 > case.x.shape[1]
    assert results_on(Fibers(0, INDEX="int", SMALL="short"), case) == results_on(Fibers(0), case)


@SLOW
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


@pytest.mark.parametrize("name", first_is_quick(*SHORT_OFFSETS))
def test_a_short_offset_is_detected(name: str) -> None:
    case = case_of("float32", True, 40, 1024)
    short = Fibers(0, replaced(*SHORT_OFFSETS[name]), INDEX="int", SMALL="short")
    assert bits_of(short, case=case) != bits_of(Fibers(0), case=case)


def test_a_mean_that_overflows_is_not_used() -> None:
    """The distances from the first element sum to infinity: the element itself is used (H2)."""
    usual = case_of("float32", True, 5, 67)
    case = replace(usual, x=(np.sign(usual.x) * np.float32(3e38)).astype(np.float32))
    assert results_on(Fibers(0), case) == reference_results(case)
    guard = "near - near == 0.f ? near : first_x"
    without = replaced(guard, "near")
    assert bits_of(Fibers(0, without), case=case) != bits_of(Fibers(0), case=case)
