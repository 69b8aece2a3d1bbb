"""The CUDA dialect on a processor, by random schedules: the bits of the others."""

from typing import Any

import numpy as np
import pytest

from fibers.runs import Seen, by_reference, launcher_on, on, opencl
from fibers.runtime import Fibers
from promise.families import DTYPES, Case, usual_case
from truenorm.kernels.gpu.plan import KERNELS, STORAGES, WARP, Plan
from truenorm.kernels.gpu.runtime import widened
from truenorm.kernels.rows import format_of

SEEDS = (1, 2)

SHAPES = ((37, 6), (300, 1), (70, 2), (67, 33), (9, 256), (33, 1000), (70, 1024), (17, 3001))
LONG_SHAPES = ((3, 4096), (17, 4100), (2, 4101), (3, 8192), (2, 8193), (3, 20000))
"""Sums in registers, and those that have a kernel of their own; rows that are not held."""

NOT_SUMMED = 4101

QUICK = (("float32", True, (67, 33)), ("bfloat16", False, (17, 1024)))
"""Teams of less than a warp with odd rows, and of four warps."""


def case_of(dtype: Any, centred: bool, rows: int, size: int) -> Case:
    case = usual_case("normal", rows, size, dtype)
    return case if centred else case.as_rms_norm()


def cases(*quick: tuple[str, bool, tuple[int, int]]) -> list[Any]:
    """Return all cases; the gate has those that are quick."""
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
            marks=() if key in quick else pytest.mark.slow,
            id=f"{key[0]}-{'layer' if key[1] else 'rms'}-{key[2][0]}x{key[2][1]}",
        )
        for key in sorted(every | set(quick))
    ]


@pytest.mark.parametrize(("dtype", "centred", "shape"), cases(*QUICK))
def test_same_bits_as_the_reference(dtype: str, centred: bool, shape: tuple[int, int]) -> None:
    case = case_of(dtype, centred, *shape)
    expected = by_reference(case)
    seen = [Seen(Fibers(seed)) for seed in SEEDS]
    for each in seen:
        assert on(each, case) == expected
        assert each.launches == seen[0].launches


@pytest.mark.parametrize(("dtype", "centred", "shape"), cases(QUICK[0]))
def test_same_bits_as_opencl(dtype: str, centred: bool, shape: tuple[int, int]) -> None:
    """Of all that kernels write, also what is not a result."""
    case = case_of(dtype, centred, *shape)
    seen = [Seen(Fibers(0)), Seen(opencl())]
    assert on(seen[0], case) == on(seen[1], case)
    assert seen[0].launches == seen[1].launches


def test_the_shapes_reach_every_way() -> None:
    """Teams below, of and above a warp, rows that are not held, and every kernel."""
    target = format_of(np.dtype(np.float32))
    assert target is not None
    plans = {
        (kernel, size): Plan.of(kernel, size, target, centred=True, correct=True)
        for kernel in ("forward", "backward")
        for _, size in (*SHAPES, *LONG_SHAPES)
    }
    for kernel in ("forward", "backward"):
        of_kernel = [plan for (name, _), plan in plans.items() if name == kernel]
        assert {np.sign(plan.team - WARP) for plan in of_kernel} == {-1, 0, 1}
        assert {plan.vector for plan in of_kernel} >= {1, 2, 4}
    assert {plans["forward", size].held for _, size in LONG_SHAPES} == {False, True}
    assert {plans["backward", size].sums for _, size in LONG_SHAPES} == {False, True}


@pytest.mark.slow
def test_every_kernel_gives_the_same_bits() -> None:
    """Also those that a driver launches for few rows, or only for arrays on a device."""
    seen = [Seen(Fibers(0)), Seen(opencl())]
    case = case_of("float32", True, 3, NOT_SUMMED)
    for each in seen:
        on(each, case)
        launcher = launcher_on(each, case)
        x, dy, results = each.upload(case.x), each.upload(case.dy), each.empty(case.x.nbytes)
        some = np.array([2, 0])
        launcher.forward_again(x, results, some)
        launcher.backward_again(dy, x, results, some)
        sums = each.upload(np.random.default_rng(0).standard_normal((5, NOT_SUMMED)))
        launcher.columns_again(dy, x, sums, np.array([4100, 0, 33]), len(case.x))
        for target in STORAGES:
            for kernel in ("finish_gamma", "finish_beta"):
                launcher.rounded(sums, kernel, target, each.empty(4 * NOT_SUMMED))
            widened(each, each.upload(case.x[0]), NOT_SUMMED, target)
    assert seen[0].launches == seen[1].launches
    assert {kernel for kernel, _ in seen[0].launches} == set(KERNELS)
