"""The whole demonstration: rows whose mean outgrows their spread, and named rows.

Swept rows have standard deviation 1, so that their mean, the offset, is their condition number
kappa.
"""

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from truenorm.demo.algorithms import contestants, run
from truenorm.demo.errors import Error, errors_of
from truenorm.demo.report import Curve, Report, Sweep
from truenorm.demo.rows import TRIGGERS, tried
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress, announced
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case
from truenorm.verify.types import FORMATS, unit_roundoff

__all__ = ["DTYPES", "SweptType", "demonstrate", "offsets", "slope"]

SweptType = Literal["float32", "float64"]
DTYPES: tuple[SweptType, ...] = get_args(SweptType)
"""The types that are swept. Named rows are there for float16 as well."""
ROWS = 6
EPS = 1e-5

Errors = dict[tuple[str, str], list[Error]]
"""At each offset, by algorithm and output."""


def demonstrate(
    dtypes: Sequence[str] = DTYPES,
    *,
    size: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Report:
    """Measure every algorithm against exact integers.

    Parameters
    ----------
    dtypes : sequence of str
        Of `DTYPES`. With all of them come the named rows of every type.
    size : int
        D, the number of elements of a row; at least 2.
    seed : int
        Of the rows' noise.
    progress : callable, optional
        Is told how many offsets are done, of how many, and what comes next.

    Returns
    -------
    Report

    Examples
    --------
    >>> report = demonstrate(["float32"], size=3)
    >>> report.sweeps[0].offsets[-1]
    10000000.0
    """
    jobs = [(dtype, *each) for dtype in dtypes for each in enumerate(offsets(dtype))]
    found: dict[str, Errors] = {dtype: {} for dtype in dtypes}
    for dtype, place, offset in announced(
        jobs, progress, lambda job: f"{job[0]}, offset {job[2]:g}"
    ):
        case = _case(dtype, offset, size, [seed, place])
        for name in contestants(dtype):
            for output, error in errors_of(case, run(name, case)).items():
                found[dtype].setdefault((name, output), []).append(error)
    if progress is not None:
        progress(len(jobs), len(jobs), "named rows")
    every = set(dtypes) == set(DTYPES)
    named = [tried(each) for each in TRIGGERS if every or each.dtype in dtypes]
    sweeps = [_sweep(dtype, errors) for dtype, errors in found.items()]
    machine = describe("truenorm", "numpy", "python", "machine", "date")
    return Report(machine, size, ROWS, EPS, seed, sweeps, named)


def offsets(dtype: str) -> list[float]:
    """Return half-decades from 1 on, until neighbouring numbers of the type are 1 apart.

    Examples
    --------
    >>> offsets("float32")[-3:]
    [1000000.0, 3160000.0, 10000000.0]
    """
    last = int(2 * FORMATS[dtype].precision * math.log10(2))
    return [float(f"{10 ** (half / 2):.3g}") for half in range(last + 1)]


def _case(dtype: str, offset: float, size: int, seed: Sequence[int]) -> Case:
    """Return rows of standard deviation 1 around the offset; no parameter is special."""
    random = np.random.default_rng(seed)
    x = offset + random.standard_normal((ROWS, size))
    dy = 0.5 + random.standard_normal((ROWS, size))
    gamma = 1.0 + 0.5 * random.standard_normal(size)
    beta = random.standard_normal(size)
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return layer_norm_case(f"{dtype}-offset-{offset:g}", (x, gamma, beta, dy), EPS)


def _sweep(dtype: str, found: Errors) -> Sweep:
    """Arrange the errors as curves, of four digits."""
    kappas, u = offsets(dtype), unit_roundoff(dtype)
    curves = []
    for (name, output), errors in found.items():
        relative, ulp = (
            [float(f"{value:.4g}") for value in values] for values in zip(*errors, strict=True)
        )
        curves.append(Curve(name, output, relative, ulp, slope(kappas, relative, u)))
    return Sweep(dtype, u, kappas, curves)


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
