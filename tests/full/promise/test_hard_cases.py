"""The promise next to rounding boundaries: on cached cases in the gate, on more when slow.

Also: the data files are up to date. That the cases are hard enough shows in `test_bounds`, where
rounding tests with too small a bound fail.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from shared.promise.cached_cases import (
    INPUTS,
    CachedCase,
    cached_cases,
    expected_digest,
    some_cached_cases,
)
from shared.promise.checking import check
from shared.promise.digests import assert_digest
from shared.promise.families import DTYPES, Case
from shared.promise.hard_cases import (
    OUTPUTS,
    RMS_OUTPUTS,
    hard_case,
    hard_cases,
    hard_elements,
    isolated_cases,
)
from shared.promise.oracle import bits

SLOW = pytest.mark.slow(reason="50,000 hard cases for each type and output take an hour")

GATE, MANY = 10_000, 50_000
# A case near a midpoint, and one on it. The first has parameters of another type than x.
SAMPLE = {"y": (0, 2), "dx": (0, 2), "dgamma": (0, 2), "dbeta": (0, 1)}

each_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
each_output = pytest.mark.parametrize("output", OUTPUTS)
needs_longdouble = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant != 63, reason="cases are made with a longdouble of 64 bits"
)


def assert_right(hard: Iterable[Case], output: str) -> int:
    """Compare every backend with the oracle, and return the number of hard elements."""
    elements = 0
    for case in hard:
        _, wrong = check(case, [output])
        assert not wrong, wrong
        elements += hard_elements(case, output)
    return elements


@each_type
@each_output
def test_cached_cases(output: str, dtype: np.dtype[Any]) -> None:
    elements = 0
    for case, expected in cached_cases(output, dtype):
        assert_digest(case, output, expected)
        elements += hard_elements(case, output)
    assert elements >= GATE


@SLOW
@each_type
@each_output
def test_more_cases(output: str, dtype: np.dtype[Any]) -> None:
    assert assert_right(hard_cases(output, dtype, MANY), output) >= MANY


@needs_longdouble
@each_type
@pytest.mark.parametrize("output", RMS_OUTPUTS)
@pytest.mark.parametrize("elements", [3_000, pytest.param(MANY, marks=SLOW)])
def test_cases_of_rms_norm(output: str, dtype: np.dtype[Any], elements: int) -> None:
    hard = hard_cases(output, dtype, elements, centred=False)
    assert assert_right(hard, output) >= elements


@each_type
def test_isolated_y(dtype: np.dtype[Any]) -> None:
    assert_right(isolated_cases(some_cached_cases("y", dtype, GATE), 200), "y")


@SLOW
@each_type
def test_more_isolated_y(dtype: np.dtype[Any]) -> None:
    assert_right(isolated_cases(hard_cases("y", dtype, 2**62), MANY // 10), "y")


@each_type
@each_output
class TestDataFiles:
    @pytest.fixture(params=["sample", pytest.param("all", marks=SLOW)])
    def cached(
        self, request: pytest.FixtureRequest, output: str, dtype: np.dtype[Any]
    ) -> dict[int, CachedCase]:
        """Return cases by number."""
        cached = dict(enumerate(cached_cases(output, dtype)))
        return cached if request.param == "all" else {k: cached[k] for k in SAMPLE[output]}

    def test_hashes_are_those_of_the_oracle(
        self, cached: dict[int, CachedCase], output: str
    ) -> None:
        for case, expected in cached.values():
            assert expected_digest(case, output) == expected

    @needs_longdouble
    def test_inputs_are_those_of_the_command(
        self, cached: dict[int, CachedCase], output: str, dtype: np.dtype[Any]
    ) -> None:
        for k, (case, _) in cached.items():
            made = hard_case(output, dtype, k)
            assert (case.name, case.eps, case.columns) == (made.name, made.eps, made.columns)
            for name in INPUTS[output]:
                here, there = getattr(case, name), getattr(made, name)
                assert (here.dtype, here.shape) == (there.dtype, there.shape)
                assert bits(here).tobytes() == bits(there).tobytes(), name
