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
