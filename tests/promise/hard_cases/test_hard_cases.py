"""The promise beside a rounding boundary: on what is kept in the gate, and on more when slow."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from kinds import SETS_AND_TYPES
from promise.families import DTYPES, Case
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements
from promise.hard_cases.kept import digest, kept_cases, some_kept
from promise.hard_cases.lonely import lonely_cases
from promise.judging import BACKENDS, both_passes, judge

GATE, SLOW = 10_000, 50_000
LONELY = 500

of_each_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
of_each_kind = pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)
of_each_output = pytest.mark.parametrize("output", OUTPUTS)


def assert_right(case: Case, output: str, right: str, backends: Sequence[str]) -> None:
    """Hold backends against the hash that is kept; if one fails, ask the judge where."""
    for backend in backends:
        result = both_passes(case, backend)[OUTPUTS.index(output)]
        assert result is not None
        looked_at = result if case.columns is None else result[..., list(case.columns)]
        if digest(looked_at) != right:
            _, wrong = judge(case, [output], [backend])
            raise AssertionError(wrong or f"{case}: the hash that is kept is wrong")


@of_each_kind
@of_each_output
def test_as_kept(output: str, backends: Sequence[str], dtype: np.dtype[Any]) -> None:
    hard = 0
    for case, right in kept_cases(output, dtype):
        assert_right(case, output, right, backends)
        hard += hard_elements(case, output)
    assert hard >= GATE


@of_each_kind
@of_each_output
def test_one_wrong_bit_is_seen(output: str, backends: Sequence[str], dtype: np.dtype[Any]) -> None:
    case, right = next(kept_cases(output, dtype))
    with pytest.raises(AssertionError, match="the hash that is kept is wrong"):
        assert_right(case, output, right[1:] + "0", backends)


def check_lonely_cases(
    hard: Iterable[Case], elements: int, backends: Sequence[str] = BACKENDS
) -> None:
    for case in lonely_cases(hard, elements):
        _, wrong = judge(case, ["y"], backends)
        assert not wrong, wrong


@of_each_kind
def test_hard_y_alone_in_its_row(backends: Sequence[str], dtype: np.dtype[Any]) -> None:
    check_lonely_cases(some_kept("y", dtype, GATE), LONELY, backends)


@pytest.mark.slow
@of_each_type
@of_each_output
def test_at_length(output: str, dtype: np.dtype[Any]) -> None:
    hard = 0
    for case in hard_cases(output, dtype, SLOW):
        _, wrong = judge(case, [output])
        hard += hard_elements(case, output)
        assert not wrong, wrong
    assert hard >= SLOW


@pytest.mark.slow
@of_each_type
def test_hard_y_alone_in_its_row_at_length(dtype: np.dtype[Any]) -> None:
    check_lonely_cases(hard_cases("y", dtype, 2**62), SLOW // 10)
