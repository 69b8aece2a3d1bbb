"""Normal float64 data, and what takes some of it out of the range of plain float64."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from promise.families import Case, usual_case

FLOAT64 = np.dtype(np.float64)
ROWS, SIZE = 7, 19
Change = Callable[[Case], Any]


def normal(rows: int = ROWS, size: int = SIZE) -> Case:
    case = usual_case("normal", rows, size, FLOAT64)
    gamma, beta = (np.array(each) for each in case.parameters)
    return replace(case, x=case.x.copy(), dy=case.dy.copy(), gamma=gamma, beta=beta)


def by_driver(case: Case) -> Case:
    """Return the same case in arrays that do not go to the kernels at once."""
    return replace(case, x=np.asfortranarray(case.x), dy=np.asfortranarray(case.dy))


def scales(case: Case) -> None:
    case.x[1:6] *= np.array([[1e200], [1e-200], [1e300], [1e-300], [1e-158]])


def _differences_overflow(case: Case) -> None:
    case.x[2] = 1.7e308 * np.sign(case.x[2])


def _squares_underflow(case: Case) -> None:
    """Have a spread whose square is zero: such a row is not constant."""
    case.x[2] = 0.0
    case.x[2, 3] = 1e-170


def _slopes(case: Case) -> None:
    case.dy[1:5] *= np.array([[1e200], [1e-200], [1e300], [1e-310]])


ROWS_OUT_OF_RANGE: list[Change] = [scales, _differences_overflow, _squares_underflow, _slopes]


def _large_gamma(case: Case) -> None:
    case.parameters[0][3] = 1e300


def _small_gamma(case: Case) -> None:
    """All products of gamma and dy underflow, and dx does not: r is 1e100."""
    case.x[...] *= 1e-100
    case.parameters[0][...] *= 1e-140
    case.dy[...] *= 1e-190


def _small_gamma_and_r(case: Case) -> None:
    """r*gamma is subnormal, and y is not."""
    case.x[...] *= 1e100
    case.parameters[0][...] *= 1e-210
    case.parameters[1][...] = 0


def _large_beta(case: Case) -> None:
    case.parameters[1][:3] = 1.7e308, -1.7e308, 1e160


def _terms_of_dgamma_overflow(case: Case) -> None:
    """Where gamma is 0, g says nothing of dy. In pairs of rows, the terms cancel."""
    case.parameters[0][2] = 0
    case.x[1::2] = case.x[:-1:2]
    case.dy[:, 2] = 1e308
    case.dy[1::2, 2] = -1.0001e308


def _terms_of_dgamma_underflow(case: Case) -> None:
    """Each would be off by half the smallest number, and so would their sum by many."""
    case.dy[:, 2] = 5e-324 * np.arange(1, len(case.dy) + 1)


def _dbeta_overflows_midway(case: Case) -> None:
    case.dy[:4, 2] = 1.7e308, 1.7e308, -1.7e308, -1.6e308


CALLS_OUT_OF_RANGE: list[Change] = [
    _large_gamma,
    _small_gamma,
    _small_gamma_and_r,
    _large_beta,
    _terms_of_dgamma_overflow,
    _terms_of_dgamma_underflow,
    _dbeta_overflows_midway,
]
