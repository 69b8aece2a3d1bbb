"""The promise on a device: the families, special values, and what lies beside a boundary."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from promise.families import Case
from promise.hard_cases import OUTPUTS, hard_cases
from promise.hard_cases.kept import some_kept
from promise.judging import judge
from promise.suites import cases, cases_from_anywhere
import ml_dtypes

NARROW = [np.dtype(each) for each in (np.float16, ml_dtypes.bfloat16, np.float32)]


def without_float64(made: Iterable[Case]) -> Iterator[Case]:
    """Leave out what a device refuses."""
    for case in made:
        given = (case.x, case.gamma, case.beta)
        if not any(each is not None and each.dtype == np.float64 for each in given):
            yield case


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_families(dtype: np.dtype[Any]) -> None:
    compared = 0
    for case in without_float64(cases(dtype, 31_000)):
        count, wrong = judge(case, backends=["gpu"])
        compared += count
        assert not wrong, wrong
    assert compared >= 30_000


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
def test_beside_a_boundary(dtype: np.dtype[Any], output: str, *, centred: bool) -> None:
    if output == "dbeta" and not centred:
        pytest.skip("RMSNorm has none")
    made = some_kept(output, dtype, 2000) if centred else hard_cases(output, dtype, 2000, centred=False)
    for case in without_float64(made):
        _, wrong = judge(case, [output], ["gpu"])
        assert not wrong, wrong
