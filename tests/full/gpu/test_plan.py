"""The mapping of rows to threads, which needs no device."""

import pytest

from truenorm.exact import BFLOAT16, FLOAT32, FloatFormat
from truenorm.kernels.gpu.plan import KERNELS, LONGEST, STORAGES, Plan

SIZES = [1, 2, 3, 7, 31, 32, 33, 64, 255, 256, 257, 1000, 1024, 4096, 8191, 8192, 8193, 16384]
SIZES += [16385, 20000, 65536, LONGEST]


def plans_of(size: int, target: FloatFormat) -> list[Plan]:
    return [Plan.of(each, size, target, centred=True, correct=True) for each in KERNELS]


@pytest.mark.parametrize("target", STORAGES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_every_element_has_one_thread(size: int, target: FloatFormat) -> None:
    for plan in plans_of(size, target):
        assert size % plan.vector == 0
        step = plan.team * plan.vector
        packs = -(-size // step)
        offsets = [
            pack * step + thread * plan.vector + k
            for pack in range(min(packs, 4))
            for thread in range(plan.team)
            for k in range(plan.vector)
        ]
        assert sorted(offsets) == list(range(min(packs, 4) * step))


@pytest.mark.parametrize("target", STORAGES, ids=str)
@pytest.mark.parametrize("size", SIZES)
def test_blocks_fit_on_devices(size: int, target: FloatFormat) -> None:
    for plan in plans_of(size, target):
        assert plan.team & (plan.team - 1) == 0
        assert plan.threads <= 512
        assert plan.teams == 1 or plan.team <= 32
        assert (
            not plan.sums_in_registers or plan.threads <= 256
        )  # which have 255 registers a thread
        assert plan.blocks(1) == 1
        assert plan.runs(plan.run + 1) == 2


def test_registers() -> None:
    """Registers have x of forward up to 8192 elements, and sums over rows up to 4096."""
    sizes = (1024, 4096, 4100, 8192, 8196)
    forward, backward = (
        [Plan.of(kernel, size, FLOAT32, centred=True, correct=True) for size in sizes]
        for kernel in ("forward", "backward")
    )
    assert [plan.size for plan in forward if plan.x_in_registers] == [1024, 4096, 4100, 8192]
    assert [plan.size for plan in backward if plan.sums_in_registers] == [1024, 4096]


def test_run_sums_do_not_depend_on_blocks_of_rows() -> None:
    from truenorm.kernels.gpu.backend import ROWS

    for size in SIZES:
        assert ROWS % Plan.of("backward", size, BFLOAT16, centred=True, correct=True).run == 0


@pytest.mark.parametrize("target", STORAGES, ids=str)
def test_backward_includes_the_depth_of_forward(target: FloatFormat) -> None:
    """At D = 2049 forward has 16 warps and 5 elements a thread, backward 8 and 9."""
    for size in range(1, 9000):
        forward, backward = (
            Plan.of(kernel, size, target, centred=True, correct=True)
            for kernel in ("forward", "backward")
        )
        assert backward.depth >= forward.depth
    assert Plan.of("backward", 2049, target, centred=True, correct=True).depth == 5 + 5 + 16
