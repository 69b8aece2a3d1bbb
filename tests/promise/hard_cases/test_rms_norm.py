"""RMSNorm beside a rounding boundary, each case judged anew: some of them in the gate."""

from typing import Any

import numpy as np
import pytest

from kinds import SETS_AND_TYPES
from promise.hard_cases import RMS_OUTPUTS, hard_cases, hard_elements
from promise.judging import judge

pytestmark = [
    pytest.mark.skipif(
        np.finfo(np.longdouble).nmant != 63, reason="made with a longdouble of 64 bits"
    ),
    pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES),
    pytest.mark.parametrize("output", RMS_OUTPUTS),
]


@pytest.mark.parametrize("elements", [3_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_hard_cases(
    output: str, backends: tuple[str, ...], dtype: np.dtype[Any], elements: int
) -> None:
    hard = 0
    for case in hard_cases(output, dtype, elements, centred=False):
        _, wrong = judge(case, [output], backends)
        hard += hard_elements(case, output)
        assert not wrong, wrong
    assert hard >= elements
