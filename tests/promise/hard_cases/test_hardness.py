"""The hard cases that are kept are as hard as they claim to be."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from promise.families import DTYPES, Case
from promise.formats import FORMATS
from promise.hard_cases import OUTPUTS, RMS_OUTPUTS, hard_cases
from promise.hard_cases.kept import some_kept
from promise.hard_cases.lonely import lonely_cases
from promise.rows import BallRow, ball_results

DOUBLE = np.float64


TIE = -10_000


def _log2_distance_to_midpoint(value: arb, precision: int) -> int:
    mantissa = abs(int(value.mid().man_exp()[0]))
    dropped = mantissa.bit_length() - precision
    assert dropped > 0, "a number of the type itself"
    distance = abs((mantissa & ((1 << dropped) - 1)) - (1 << (dropped - 1)))
    return distance.bit_length() - mantissa.bit_length() if distance else TIE


def _distances(case: Case, output: str) -> list[int]:
    precision = FORMATS[case.x.dtype].precision
    with ctx.workprec(1500):
        rows = [
            BallRow(row, case.eps, centred=case.centred) for row in case.x.astype(DOUBLE).tolist()
        ]
        found = ball_results(case, rows, output)
        return [_log2_distance_to_midpoint(value, precision) for value in found]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("elements", "part"), [(2000, 40), pytest.param(10_000, 10_000, marks=pytest.mark.slow)]
)
def test_they_are_as_near_as_claimed(
    output: str, dtype: np.dtype[Any], elements: int, part: int
) -> None:
    """Look at cases until so many elements are done; at most so many rows and columns of each."""
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    if output == "dbeta":
        # One subnormal beside a sum of at most 2^(precision - 2), or a tie.
        furthest = FORMATS[dtype].quantum - FORMATS[dtype].precision + 4
        typical = -dtype.itemsize * 8
    near = _looked_at(some_kept(output, dtype, elements), output, part)
    assert max(near) <= furthest
    assert np.median(near) <= typical


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant != 63, reason="made with a longdouble of 64 bits"
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", RMS_OUTPUTS)
def test_those_of_rms_norm_are_as_near(output: str, dtype: np.dtype[Any]) -> None:
    furthest, typical = (-98, -104) if dtype == DOUBLE else (-48, -54)
    near = _looked_at(hard_cases(output, dtype, 3000, centred=False), output, 30)
    assert max(near) <= furthest
    assert np.median(near) <= typical


def _looked_at(cases: Iterable[Case], output: str, part: int) -> list[int]:
    """Return how near elements are that are not on a midpoint, and check those that are."""
    near: list[int] = []
    for case in cases:
        for one in (case.x, case.gamma, case.beta, case.dy):
            assert one is None or np.isfinite(one.astype(DOUBLE)).all(), str(case)
        some = case.rows(slice(part if output in ("y", "dx") else None))
        columns = case.columns and case.columns[:part]
        distances = _distances(replace(some, columns=columns), output)
        if "tie" in case.name and output != "dbeta":
            assert max(distances) <= -50, str(case)
        else:
            near += distances
    return near


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lonely_cases_have_one_hard_element_in_a_row(dtype: np.dtype[Any]) -> None:
    """As near as those of `hard_cases`; another one in the same row is there by chance."""
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    near, others, made = [], [], 0
    for case in lonely_cases(some_kept("y", dtype, 10_000), 300):
        assert case.columns is not None
        assert len(case.columns) == len(case.x)
        made += len(case.x)
        distances = np.array(_distances(case.rows(slice(5)), "y")).reshape(-1, len(case.columns))
        near += np.diagonal(distances).tolist()
        others += distances[~np.eye(*distances.shape, dtype=bool)].tolist()
    assert made >= 300
    assert max(near) <= furthest
    assert np.median(near) <= typical
    assert np.mean(np.array(others) <= furthest) <= 0.05
