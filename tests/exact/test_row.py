"""Rows in integers, against the judge and against ties worked out by hand."""

from typing import Any

import numpy as np
import pytest

from promise.families import DTYPES, cases
from promise.oracle import bits, correct_backward, correct_forward
from truenorm.exact import (
    FLOAT32,
    FLOAT64,
    ExactRow,
    RowGradient,
    centred_signs,
    scaled_integers,
)
from truenorm.kernels.rows import format_of


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_element_through_integers(dtype: np.dtype[Any]) -> None:
    """The last level alone, on rows that would not reach it otherwise."""
    target = format_of(dtype)
    assert target is not None
    compared = 0
    for case in cases(dtype, 3000):
        x = case.x[:2].astype(np.float64)
        if x.shape[1] > 70 or case.rows(slice(2)).has_undefined_rows:
            continue
        gamma, beta = (values.astype(np.float64).tolist() for values in case.parameters)
        dy = case.dy[:2].astype(np.float64)
        rows = [ExactRow(row.tolist(), case.eps) for row in x]
        columns = range(x.shape[1])
        y = [[row.y(j, gamma[j], beta[j], target) for j in columns] for row in rows]
        gradients = [
            RowGradient(row, scaled_integers(gamma), slopes.tolist())
            for row, slopes in zip(rows, dy, strict=True)
        ]
        dx = [[gradient.dx(j, target) for j in columns] for gradient in gradients]
        with np.errstate(over="ignore"):
            y_bits, dx_bits = (bits(np.array(values).astype(dtype)) for values in (y, dx))
        expected_y = correct_forward(case.x[:2], case.gamma, case.beta, case.eps)
        expected_dx = correct_backward(case.dy[:2], case.x[:2], case.gamma, case.beta, case.eps)[0]
        assert y_bits.tolist() == bits(expected_y).tolist(), str(case)
        assert dx_bits.tolist() == bits(expected_dx).tolist(), str(case)
        compared += y_bits.size
    assert compared > 500


def test_a_tie_that_no_bracket_decides() -> None:
    """At x = (1, -1) and eps = 8, r is 1/3, and 3*xhat + 2**-24 a tie."""
    row = ExactRow([1.0, -1.0], 8.0)
    assert row.root.rational == (24, 72)
    assert row.y(0, 3.0, 2.0**-24, FLOAT32) == 1.0
    assert row.y(0, 3.0, 3 * 2.0**-24, FLOAT32) == 1 + 2.0**-22


@pytest.mark.parametrize(("beside", "expected"), [(np.inf, 1.0), (-np.inf, 1 + 2.0**-23)])
def test_one_ulp_beside_a_tie(beside: float, expected: float) -> None:
    """With eps an ulp larger r is smaller, and y below the tie; irrational both times."""
    eps = float(np.nextafter(8.0, beside))
    row = ExactRow([1.0, -1.0], eps)
    assert row.root.rational is None
    assert row.y(0, 3.0, 2.0**-24, FLOAT32) == expected


def test_refinement_goes_as_far_as_it_must() -> None:
    """An eps of 5e-324 moves xhat by 2**-1075 from 1: thousands of bits, and it ends."""
    assert ExactRow([1.0, -1.0], 5e-324).y(0, 1.0, 2.0**-53, FLOAT64) == 1.0
    assert ExactRow([1.0, -1.0], 5e-324).y(0, 1.0, 3 * 2.0**-53, FLOAT64) == 1 + 2.0**-52


def test_signs() -> None:
    assert centred_signs([1.0, 2.0, 3.0]) == [-1, 0, 1]
    assert centred_signs([1e308, 1e308, np.nextafter(1e308, 0)]) == [1, 1, -1]
