"""Every instruction set gives the bits of the promise: a sample in the gate, more when slow."""

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from promise.cached_cases import cached_cases, digest
from promise.checking import BACKENDS, both_passes, check
from promise.families import cases, full_range_cases
from promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases, hard_elements

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

TYPES = [np.dtype(name) for name in ("float32", "float16", ml_dtypes.bfloat16)]
of_each_type = pytest.mark.parametrize("dtype", TYPES, ids=str)
of_two_sizes = pytest.mark.parametrize(
    "elements", [3000, pytest.param(50_000, marks=pytest.mark.slow)]
)


@pytest.fixture(params=["baseline", "avx2", "avx512"], autouse=True)
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select an instruction set for a test."""
    if _core.select(request.param) != request.param:
        pytest.skip("not an instruction set of this processor")
    yield request.param
    _core.select(None)


@of_each_type
@of_two_sizes
def test_families(elements: int, dtype: np.dtype[Any]) -> None:
    for case in cases(dtype, elements):
        _, wrong = check(case, backends=["native"])
        assert not wrong, wrong


@of_each_type
@of_two_sizes
def test_numbers_from_anywhere(elements: int, dtype: np.dtype[Any]) -> None:
    for case in full_range_cases(dtype, elements // 200):
        _, wrong = check(case, backends=["native"])
        assert not wrong, wrong


@of_each_type
@pytest.mark.parametrize("output", OUTPUTS)
def test_hard_cases_of_layer_norm(output: str, dtype: np.dtype[Any]) -> None:
    hard = 0
    for case, right in cached_cases(output, dtype):
        result = both_passes(case, "native")[OUTPUTS.index(output)]
        assert result is not None
        looked_at = result if case.columns is None else result[..., list(case.columns)]
        assert digest(looked_at) == right, str(case)
        hard += hard_elements(case, output)
    assert hard >= 10_000


@of_each_type
@of_two_sizes
@pytest.mark.parametrize("output", RMS_OUTPUTS)
def test_hard_cases_of_rms_norm(output: str, elements: int, dtype: np.dtype[Any]) -> None:
    for case in hard_cases(output, dtype, elements, centred=False):
        _, wrong = check(case, [output], ["native"])
        assert not wrong, wrong


@pytest.mark.slow
@of_each_type
@pytest.mark.parametrize("output", OUTPUTS)
def test_more_hard_cases_of_layer_norm(output: str, dtype: np.dtype[Any]) -> None:
    for case in hard_cases(output, dtype, 50_000):
        _, wrong = check(case, [output], ["native"])
        assert not wrong, wrong


def test_the_choice_cannot_be_raised() -> None:
    best = _core.select(None)
    for name in ("baseline", "avx2", "avx512"):
        assert (
            sorted([_core.select(name), best], key=["baseline", "avx2", "avx512"].index)[1] == best
        )
    with pytest.raises(ValueError, match="instruction set must be 'baseline'"):
        _core.select("sse9")
