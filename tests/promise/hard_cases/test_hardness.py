"""The hard cases that are kept are as hard as they claim to be."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from promise.families import DTYPES, Case
from promise.formats import FORMATS
from promise.hard_cases import OUTPUTS, hard_elements
from promise.hard_cases.kept import kept_cases
from promise.hard_cases.lonely import lonely_cases
from promise.rows import BallRow

DOUBLE = np.float64


def _balls(case: Case, output: str) -> list[arb]:
    columns = range(case.x.shape[1]) if case.columns is None else case.columns
    gamma, beta = (values.astype(DOUBLE).tolist() for values in case.parameters)
    rows = [BallRow(row, case.eps) for row in case.x.astype(DOUBLE).tolist()]
    dys = case.dy.astype(DOUBLE).tolist()
    if output == "y":
        return [value for row in rows for value in row.y(gamma, beta, columns)]
    if output == "dx":
        pairs = zip(rows, dys, strict=True)
        return [value for row, dy in pairs for value in row.dx(gamma, dy, columns)]
    if output == "dbeta":
        return [sum((arb(dy[j]) for dy in dys), arb(0)) for j in columns]
    return [
        sum((arb(dy[j]) * row.c[j] * row.r for row, dy in zip(rows, dys, strict=True)), arb(0))
        for j in columns
    ]


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
        return [_log2_distance_to_midpoint(value, precision) for value in _balls(case, output)]


def check_distances(output: str, dtype: np.dtype[Any], elements: int, part: int) -> None:
    """Look at cases until so many elements are done; at most so many rows and columns of each."""
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    if output == "dbeta":
        # One subnormal beside a sum of at most 2^(precision - 2), or a tie.
        furthest = FORMATS[dtype].quantum - FORMATS[dtype].precision + 4
        typical = -dtype.itemsize * 8
    near: list[int] = []
    made = 0
    for case, _ in kept_cases(output, dtype):
        if made >= elements:
            break
        made += hard_elements(case, output)
        for one in (case.x, case.gamma, case.beta, case.dy):
            assert one is None or np.isfinite(one.astype(DOUBLE)).all(), str(case)
        some = case.rows(slice(part if output in ("y", "dx") else None))
        columns = case.columns and case.columns[:part]
        distances = _distances(replace(some, columns=columns), output)
        if "tie" in case.name and output != "dbeta":
            assert max(distances) <= -50, str(case)
        else:
            near += distances
    assert made >= elements
    assert max(near) <= furthest
    assert np.median(near) <= typical


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_some_are_as_near_as_claimed(output: str, dtype: np.dtype[Any]) -> None:
    check_distances(output, dtype, 2000, 40)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_all_are_as_near_as_claimed(output: str, dtype: np.dtype[Any]) -> None:
    check_distances(output, dtype, 10_000, 10_000)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lonely_cases_have_one_hard_element_in_a_row(dtype: np.dtype[Any]) -> None:
    """As near as those of `hard_cases`; another one in the same row is there by chance."""
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    near, others, made = [], [], 0
    for case in lonely_cases((case for case, _ in kept_cases("y", dtype)), 300):
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
