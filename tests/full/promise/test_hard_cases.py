"""The promise next to rounding boundaries: on cached cases in the gate, on more when slow.

Also: the cached cases are as hard as `hard_cases` claims, and the data files are up to date.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from shared.promise.cached_cases import (
    DATA,
    INPUTS,
    CachedCase,
    cached_cases,
    expected_digest,
    some_cached_cases,
)
from shared.promise.checking import ball_results, check
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
from shared.promise.oracle import FORMATS, BallRow, bits

SLOW = pytest.mark.slow(reason="50,000 hard cases for each type and output take an hour")

GATE, MANY = 10_000, 50_000
DOUBLE = np.dtype(np.float64)
TIE = -10_000  # in place of the logarithm of 0
MEGABYTES = 5
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


@each_type
@each_output
def test_another_hash_is_detected(output: str, dtype: np.dtype[Any]) -> None:
    case, expected = next(cached_cases(output, dtype))
    with pytest.raises(AssertionError, match="the cached hash is wrong"):
        assert_digest(case, output, expected[1:] + "0")


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


def log2_distance_to_midpoint(value: arb, precision: int) -> int:
    """Return the logarithm of the relative distance of a value to the nearest midpoint."""
    mantissa = abs(int(value.mid().man_exp()[0]))
    dropped = mantissa.bit_length() - precision
    assert dropped > 0, "a number of the type itself"
    distance = abs((mantissa & ((1 << dropped) - 1)) - (1 << (dropped - 1)))
    return distance.bit_length() - mantissa.bit_length() if distance else TIE


def log2_distances(case: Case, output: str) -> list[int]:
    precision = FORMATS[case.x.dtype].precision
    with ctx.workprec(1500):
        rows = [
            BallRow(row, case.eps, centred=case.centred) for row in case.x.astype(DOUBLE).tolist()
        ]
        return [
            log2_distance_to_midpoint(value, precision)
            for value in ball_results(case, rows, output)
        ]


def assert_near(
    hard: Iterable[Case],
    output: str,
    dtype: np.dtype[Any],
    part: int,
    *,
    median_of_float64: int = -105,
) -> None:
    """Check the distance to midpoints of at most `part` rows and columns of each case."""
    furthest, median = (-98, median_of_float64) if dtype == DOUBLE else (-48, -54)
    if output == "dbeta":
        # One subnormal beside a sum of at most 2^(precision - 2), or a tie.
        furthest = FORMATS[dtype].quantum - FORMATS[dtype].precision + 4
        median = -dtype.itemsize * 8
    near: list[int] = []
    for case in hard:
        for array in (case.x, case.gamma, case.beta, case.dy):
            assert array is None or np.isfinite(array.astype(DOUBLE)).all(), str(case)
        some = case.rows(slice(part if output in ("y", "dx") else None))
        distances = log2_distances(
            replace(some, columns=case.columns and case.columns[:part]), output
        )
        if "tie" in case.name and output != "dbeta":
            assert max(distances) <= -50, str(case)
        else:
            near += distances
    assert max(near) <= furthest
    assert np.median(near) <= median


@each_type
@each_output
@pytest.mark.parametrize(
    ("elements", "part"), [(2000, 40), pytest.param(10_000, 10_000, marks=SLOW)]
)
def test_cached_cases_are_near_midpoints(
    output: str, dtype: np.dtype[Any], elements: int, part: int
) -> None:
    assert_near(some_cached_cases(output, dtype, elements), output, dtype, part)


@needs_longdouble
@each_type
@pytest.mark.parametrize("output", RMS_OUTPUTS)
def test_cases_of_rms_norm_are_near_midpoints(output: str, dtype: np.dtype[Any]) -> None:
    hard = hard_cases(output, dtype, 3000, centred=False)
    assert_near(hard, output, dtype, 30, median_of_float64=-104)


@each_type
def test_isolated_cases_have_one_hard_element_in_a_row(dtype: np.dtype[Any]) -> None:
    """A second hard element in a row is a coincidence, and rare."""
    furthest, median = (-98, -105) if dtype == DOUBLE else (-48, -54)
    near, others, elements = [], [], 0
    for case in isolated_cases(some_cached_cases("y", dtype, GATE), 300):
        assert case.columns is not None
        assert len(case.columns) == len(case.x)
        elements += len(case.x)
        distances = np.array(log2_distances(case.rows(slice(5)), "y"))
        distances = distances.reshape(-1, len(case.columns))
        near += np.diagonal(distances).tolist()
        others += distances[~np.eye(*distances.shape, dtype=bool)].tolist()
    assert elements >= 300
    assert max(near) <= furthest
    assert np.median(near) <= median
    assert np.mean(np.array(others) <= furthest) <= 0.05


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

    def test_files_are_small(self, output: str, dtype: np.dtype[Any]) -> None:
        assert (DATA / f"{dtype.name}-{output}.npz").is_file()
        assert sum(path.stat().st_size for path in DATA.iterdir()) <= MEGABYTES * 2**20
