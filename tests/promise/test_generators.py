"""The families are all there, and the hard cases are as hard as they claim to be."""

from typing import Any

import numpy as np
import pytest
from flint import arb, ctx

from promise.families import DTYPES, EPSILONS, WIDTHS, X_FAMILIES, Array, Case, cases
from promise.formats import FORMATS, bits
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements
from promise.lonely_cases import lonely_cases
from promise.rows import BallRow

DOUBLE = np.float64


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_families_are_complete_finite_and_the_same_every_time(dtype: np.dtype[Any]) -> None:
    made = list(cases(dtype, 30_000))
    assert 30_000 <= sum(case.x.size for case in made) < 40_000
    assert {case.x.shape[1] for case in made} == set(WIDTHS)
    assert {case.eps for case in made} == set(EPSILONS)
    assert {str(case).split()[1] for case in made} == set(X_FAMILIES)
    # dgamma of many rows, and of rows that cancel, is there to be looked at.
    summed = [case for case in made if case.gamma is not None and case.beta is not None]
    assert max(len(case.x) for case in summed) == 1000
    assert {"mirrored", "mirrored_doubled"} <= {str(case).split()[1] for case in summed}
    for case, again in zip(made, cases(dtype, 30_000), strict=True):
        for one, two in zip(_arrays(case), _arrays(again), strict=True):
            assert np.isfinite(one.astype(DOUBLE)).all(), str(case)
            assert bits(one).tolist() == bits(two).tolist(), str(case)


def _arrays(case: Case) -> list[Array]:
    return [part for part in (case.x, case.gamma, case.beta, case.dy) if part is not None]


def _balls(case: Case, output: str) -> list[arb]:
    columns = range(case.x.shape[1]) if case.columns is None else case.columns
    ones, zeros = np.ones(case.x.shape[1]), np.zeros(case.x.shape[1])
    gamma = (ones if case.gamma is None else case.gamma.astype(DOUBLE)).tolist()
    beta = (zeros if case.beta is None else case.beta.astype(DOUBLE)).tolist()
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


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("output", OUTPUTS)
def test_hard_cases_are_as_near_as_claimed(output: str, dtype: np.dtype[Any]) -> None:
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    if output == "dbeta":
        # One subnormal beside a sum of at most 2^(precision - 2), or a tie.
        furthest = FORMATS[dtype].quantum - FORMATS[dtype].precision + 4
        typical = -dtype.itemsize * 8
    near, made = [], 0
    for case in hard_cases(output, dtype, 2000):
        some = case.columns and case.columns[:40]
        rows = slice(40) if output in ("y", "dx") else slice(None)
        part = Case(case.name, case.x[rows], case.gamma, case.beta, case.dy[rows], case.eps, some)
        made += hard_elements(case, output)
        for one in _arrays(case):
            assert np.isfinite(one.astype(DOUBLE)).all(), str(case)
        with ctx.workprec(1500):
            distances = [
                _log2_distance_to_midpoint(value, FORMATS[dtype].precision)
                for value in _balls(part, output)
            ]
        if "tie" in case.name and output != "dbeta":
            assert max(distances) <= -50, str(case)
        else:
            near += distances
    assert made >= 2000
    assert max(near) <= furthest
    assert np.median(near) <= typical


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lonely_cases_have_one_hard_element_in_a_row(dtype: np.dtype[Any]) -> None:
    """As near as those of `hard_cases`; another one in the same row is there by chance."""
    furthest, typical = (-98, -105) if dtype == DOUBLE else (-48, -54)
    near, others, made = [], [], 0
    for case in lonely_cases(dtype, 300):
        assert case.columns is not None
        assert len(case.columns) == len(case.x)
        made += len(case.x)
        some = Case(case.name, case.x[:5], case.gamma, case.beta, case.dy, case.eps, case.columns)
        with ctx.workprec(1500):
            distances = np.array(
                [
                    _log2_distance_to_midpoint(value, FORMATS[dtype].precision)
                    for value in _balls(some, "y")
                ]
            ).reshape(-1, len(case.columns))
        near += np.diagonal(distances).tolist()
        others += distances[~np.eye(*distances.shape, dtype=bool)].tolist()
    assert made >= 300
    assert max(near) <= furthest
    assert np.median(near) <= typical
    assert np.mean(np.array(others) <= furthest) <= 0.05
