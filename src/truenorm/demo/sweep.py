"""The error of every algorithm as the mean of rows outgrows their spread.

Rows have standard deviation 1, so that their mean, the offset, is their condition number kappa.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from truenorm.demo.algorithms import contestants, run
from truenorm.demo.errors import Error, errors_of
from truenorm.demo.report import Curve, Sweep
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case
from truenorm.verify.types import FORMATS, unit_roundoff

__all__ = ["EPS", "ROWS", "offsets", "points", "slope", "sweep_of"]

ROWS = 6
EPS = 1e-5
DIGITS = 4
"""Significant digits of an error that are kept."""

Point = dict[tuple[str, str], Error]
"""The errors at one offset, by algorithm and output."""


def offsets(dtype: str) -> list[float]:
    """Return half-decades from 1 on, until neighbouring numbers of the type are 1 apart.

    Examples
    --------
    >>> offsets("float32")[-3:]
    [1000000.0, 3160000.0, 10000000.0]
    """
    last = int(2 * FORMATS[dtype].precision * math.log10(2))
    return [float(f"{10 ** (half / 2):.3g}") for half in range(last + 1)]


def points(dtype: str, size: int, seed: int) -> Iterator[Point]:
    """Yield the errors at each offset."""
    for place, offset in enumerate(offsets(dtype)):
        case = _case(dtype, offset, size, [seed, place])
        yield {
            (name, output): error
            for name in contestants(dtype)
            for output, error in errors_of(case, run(name, case)).items()
        }


def _case(dtype: str, offset: float, size: int, seed: Sequence[int]) -> Case:
    """Return rows of standard deviation 1 around the offset; no parameter is special."""
    random = np.random.default_rng(seed)
    x = offset + random.standard_normal((ROWS, size))
    dy = 0.5 + random.standard_normal((ROWS, size))
    gamma = 1.0 + 0.5 * random.standard_normal(size)
    beta = random.standard_normal(size)
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case(f"{dtype}-offset-{offset:g}", (x, gamma, beta, dy), EPS)


def sweep_of(dtype: str, found: Sequence[Point]) -> Sweep:
    """Arrange the points of a type as curves."""
    kappas, u = offsets(dtype), unit_roundoff(dtype)
    curves = []
    for name, output in found[0]:
        errors = [each[name, output] for each in found]
        relative = [_short(error.relative) for error in errors]
        ulp = [_short(error.ulp) for error in errors]
        curves.append(Curve(name, output, relative, ulp, slope(kappas, relative, u)))
    return Sweep(dtype, u, kappas, curves)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def slope(kappas: Sequence[float], relative: Sequence[float], u: float) -> float:
    """Fit the power of kappa: over errors that are above 16 u and still below 1/8, if they grow.

    Examples
    --------
    >>> slope([1, 10, 100, 1000], [1e-7, 1e-5, 1e-3, 1e-1], 6e-8)
    2.0
    """
    within = [
        (math.log10(kappa), math.log10(error))
        for kappa, error in zip(kappas, relative, strict=True)
        if 16 * u < error < 0.125
    ]
    if len(within) < 3:
        return 0.0
    x, y = np.array(within).T
    return round(float(np.polyfit(x, y, 1)[0]), 2)
