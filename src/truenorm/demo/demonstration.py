"""The whole demonstration: sweeps over the offset, and named rows."""

import platform
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from truenorm import __version__
from truenorm.demo.report import Report
from truenorm.demo.rows import TRIGGERS
from truenorm.demo.sweep import EPS, ROWS, offsets, points, sweep_of
from truenorm.demo.trigger import tried
from truenorm.tools.progress import Progress

__all__ = ["DTYPES", "demonstrate"]

DTYPES = ("float32", "float64")
"""The types that are swept. Named rows are there for float16 as well."""


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
    if size < 2:
        raise ValueError(f"size is {size}: rows of fewer than 2 elements have no spread")
    total = sum(len(offsets(dtype)) for dtype in dtypes)
    done = 0
    sweeps = []
    for dtype in dtypes:
        found = []
        places = points(dtype, size, seed)
        for offset in offsets(dtype):
            if progress is not None:
                progress(done, total, f"{dtype}, offset {offset:g}")
            found.append(next(places))
            done += 1
        sweeps.append(sweep_of(dtype, found))
    if progress is not None:
        progress(done, total, "named rows")
    every = set(dtypes) == set(DTYPES)
    named = [tried(each) for each in TRIGGERS if every or each.dtype in dtypes]
    return Report(_machine(), size, ROWS, EPS, seed, sweeps, named)


def _machine() -> dict[str, str]:
    """Say where, with what and when: no figure means anything without it."""
    return {
        "truenorm": __version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "date": datetime.now(UTC).date().isoformat(),
    }
