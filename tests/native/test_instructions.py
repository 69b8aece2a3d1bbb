"""Correct rounding of the C core with every instruction set: a sample, more when slow."""

from collections.abc import Iterable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from promise.cached_cases import cached_cases, digest, some_cached_cases
from promise.checking import BACKENDS, both_passes, check
from promise.families import Case, cases, full_range_cases
from promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases, hard_elements, isolated_cases

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

SETS = ("baseline", "avx2", "avx512")
FLOAT64 = np.dtype(np.float64)
NARROW = [np.dtype(name) for name in ("float32", "float16", ml_dtypes.bfloat16)]
of_narrow_types = pytest.mark.parametrize("dtype", NARROW, ids=str)
of_each_type = pytest.mark.parametrize("dtype", [*NARROW, FLOAT64], ids=str)
of_two_sizes = pytest.mark.parametrize(
    "elements", [3000, pytest.param(50_000, marks=pytest.mark.slow)]
)
of_each_norm = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])


@pytest.fixture(params=SETS, autouse=True)
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select an instruction set for a test."""
    if _core.select(request.param) != request.param:
        pytest.skip("not an instruction set of this processor")
    yield request.param
    _core.select(None)


def wrong_results(made: Iterable[Case], outputs: Any = OUTPUTS) -> list[Any]:
    return [wrong for case in made for wrong in check(case, outputs, ["native"])[1]]


@of_each_type
@of_two_sizes
def test_families(elements: int, dtype: np.dtype[Any]) -> None:
    assert wrong_results(cases(dtype, elements)) == []


@of_each_type
@of_two_sizes
def test_full_range(elements: int, dtype: np.dtype[Any]) -> None:
    assert wrong_results(full_range_cases(dtype, elements // 200)) == []


@of_narrow_types
@pytest.mark.parametrize("output", OUTPUTS)
def test_cached_hard_cases(output: str, dtype: np.dtype[Any]) -> None:
    hard = 0
    for case, expected in cached_cases(output, dtype):
        result = both_passes(case, "native")[OUTPUTS.index(output)]
        assert result is not None
        compared = result if case.columns is None else result[..., list(case.columns)]
        assert digest(compared) == expected, str(case)
        hard += hard_elements(case, output)
    assert hard >= 10_000


@of_narrow_types
@of_two_sizes
@pytest.mark.parametrize("output", RMS_OUTPUTS)
def test_hard_cases_of_rms_norm(output: str, elements: int, dtype: np.dtype[Any]) -> None:
    assert wrong_results(hard_cases(output, dtype, elements, centred=False), [output]) == []


@pytest.mark.slow
@of_narrow_types
@pytest.mark.parametrize("output", OUTPUTS)
def test_more_hard_cases_of_layer_norm(output: str, dtype: np.dtype[Any]) -> None:
    assert wrong_results(hard_cases(output, dtype, 50_000), [output]) == []


def hard_float64_cases(output: str, elements: int, *, centred: bool) -> Iterable[Case]:
    """Return hard cases; those of y have one hard element a row. Up to 10,000 are cached."""
    if output == "dbeta" or not centred or elements > 10_000:
        return hard_cases(output, FLOAT64, elements, centred=centred)
    if output != "y":
        return some_cached_cases(output, FLOAT64, elements)
    return isolated_cases(some_cached_cases("y", FLOAT64, 10_000), elements // 4)


@of_two_sizes
@of_each_norm
@pytest.mark.parametrize("output", OUTPUTS)
def test_hard_cases_of_float64(output: str, elements: int, *, centred: bool) -> None:
    if output not in (OUTPUTS if centred else RMS_OUTPUTS):
        pytest.skip("RMSNorm has no beta")
    assert wrong_results(hard_float64_cases(output, elements, centred=centred), [output]) == []


@of_each_norm
@pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
def test_divided_bounds_of_float64_are_detected(output: str, *, centred: bool) -> None:
    # Sums along a row count (n + 1)**2 errors of low parts, which hardly ever add up: with bounds
    # of y and dgamma divided by 64 all results are still right.
    _core.scale_bounds(1 / 1024)
    try:
        wrong = wrong_results(hard_float64_cases(output, 2000, centred=centred), [output])
    finally:
        _core.scale_bounds(1.0)
    assert wrong


def test_a_better_set_cannot_be_selected() -> None:
    best = _core.select(None)
    for name in SETS:
        assert SETS.index(_core.select(name)) <= SETS.index(best)
    with pytest.raises(ValueError, match="instruction set must be 'baseline'"):
        _core.select("sse9")
