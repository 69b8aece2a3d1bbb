"""What compilers for GPUs make of the kernels: no warnings, no spills, nothing contracted."""

import re
from typing import Any

import pytest

from benchmarks.gpu import (
    COMPILERS,
    NORMS,
    SIZES,
    TYPES,
    Subject,
    is_installed,
    operations_per_element,
    ptx_of,
    subjects,
)
from truenorm.kernels.gpu.plan import KERNELS, source_of

SLOW = pytest.mark.slow(reason="nvcc compiles each form for seconds")

NO_SPILLS = 8192
"""The longest rows whose kernels spill no registers."""

FUSED = re.compile(r"__fmaf?_rn\(\(a\), \(b\), \(c\)\)")
INEXACT = re.compile(r"\.approx|\.ftz|\.full")


@pytest.fixture
def nvcc() -> None:
    skip_without("nvcc")


def skip_without(name: str) -> None:
    if not is_installed(name):
        pytest.skip(f"needs {name}")


def by_kernel(compiler: str) -> list[Any]:
    """Return each kernel and size with all its types and norms."""
    every = list(
        subjects(list(KERNELS), [each for each in SIZES if each <= NO_SPILLS], list(TYPES))
    )
    parameters = []
    for kernel, size in dict.fromkeys((each.kernel, each.size) for each in every):
        chosen = [each for each in every if (each.kernel, each.size) == (kernel, size)]
        name = f"{compiler}-{kernel}-{size}"
        parameters.append(pytest.param(compiler, chosen, marks=SLOW, id=name))
    return parameters


@pytest.mark.parametrize(
    ("name", "chosen"), [each for name in COMPILERS for each in by_kernel(name)]
)
def test_neither_warnings_nor_spills(name: str, chosen: list[Subject]) -> None:
    """A warning is an error, which is raised."""
    skip_without(name)
    compiler = COMPILERS[name]
    spilled = {
        (*subject, target): compiler.compile(subject, source_of(subject.kernel), target).spilled
        for subject in chosen
        for target in compiler.targets
    }
    assert {each: number for each, number in spilled.items() if number} == {}


@pytest.mark.usefixtures("nvcc")
def test_a_short_row_spills_nothing() -> None:
    subject = Subject("forward", 256, "float32", "layer norm")
    use = COMPILERS["nvcc"].compile(subject, source_of("forward"), "sm_90")
    assert use.spilled == 0
    assert 0 < use.registers <= 255


def check_ptx(subject: Subject) -> None:
    """Check that all multiply-adds are those of the source, and that nothing is approximate."""
    plan, source = subject.plan, source_of(subject.kernel)
    assert not INEXACT.search(ptx_of(source, plan, "sm_90"))
    plain, places = FUSED.subn("((a) * (b) + (c))", source)
    assert places == 2  # FMA and FMAF
    assert "fma." not in ptx_of(plain, plan, "sm_90")


@pytest.mark.usefixtures("nvcc")
def test_nothing_is_contracted() -> None:
    check_ptx(Subject("backward", 256, "float32", "layer norm"))


@SLOW
@pytest.mark.usefixtures("nvcc")
@pytest.mark.parametrize("subject", list(subjects(list(KERNELS), SIZES, list(TYPES))), ids=str)
def test_nothing_is_contracted_anywhere(subject: Subject) -> None:
    check_ptx(subject)


@SLOW
@pytest.mark.usefixtures("nvcc")
@pytest.mark.parametrize("kernel", ["forward", "backward"])
@pytest.mark.parametrize("norm", NORMS)
def test_operations_operations_per_element(kernel: str, norm: str) -> None:
    """By hand from the source, at least: sums, squares, z and its bound, and two roundings."""
    counts = operations_per_element(kernel, "float32", norm)
    least = {"forward": 9, "backward": 14}[kernel]
    assert least <= counts["sums and products"] <= 3 * least
    assert counts["quotients and roots"] == 0
    assert counts["conversions"] >= 3
