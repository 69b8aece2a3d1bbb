"""Small cases through the fused backend, for a process in which Numba compiles nothing."""
# ruff: noqa: T201
# It prints what is wrong.

import traceback
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from promise.bounds.fast_bounds import FastBounds
from promise.families import DTYPES, X_FAMILIES, Array, Case, Choice, usual_case
from promise.hard_cases import hard_cases
from promise.judging import OUTPUTS, both_passes, compare
from promise.suites import cases, not_finite_cases
from truenorm.kernels.fused import blocks

SMALL = 300
"""Elements of a case at most: Python takes a millisecond for ten of them."""


def _finite(dtype: np.dtype[Any]) -> Iterator[Case]:
    yield from (case for case in cases(dtype, 0) if case.x.size <= SMALL)
    for k, family in enumerate(X_FAMILIES):
        yield usual_case(family, 1 + k % 9, 9 + k, dtype, k)
    # More than a segment of a sum, than the columns of a sweep, than the lanes of a pair.
    for rows, size in ((9, 130), (1, 1100)):
        mixed = ("random", DTYPES[0]), ("random", DTYPES[3])
        yield Choice("normal", rows, size, 1e-5, "random", *mixed).build(dtype, 0)
        yield Choice("offset", rows, size, 1e-5, "decades", *2 * (mixed[0],)).build(dtype, 0)


def _refused(dtype: np.dtype[Any]) -> Iterator[Case]:
    for output in OUTPUTS:
        for case in hard_cases(output, dtype, 400):
            if case.x.shape[1] <= SMALL:
                some = case.rows(slice(12 if output in ("y", "dx") else None))
                yield replace(some, columns=None)


def _wrong(case: Case, *, finite: bool) -> list[Any]:
    expected = both_passes(case, "reference")
    _, wrong = compare(case, both_passes(case, "fused"), expected, OUTPUTS, "fused")
    types = {array.dtype for array in (case.x, case.gamma, case.beta) if array is not None}
    if case.x.dtype != np.float64 and np.dtype(np.float64) in types:  # fast mode is correct mode
        return wrong
    fast = both_passes(case, "fused", "fast")
    if not finite or case.has_undefined_rows or case.x.size > 60:
        # Both modes agree on what is not a number.
        pairs = zip(fast, expected, strict=True)
        return [*wrong, *("NaN" for one, other in pairs if not _same_nans(one, other))]
    return [*wrong, *FastBounds(case).violations(fast)]


def _same_nans(one: Array | None, other: Array | None) -> bool:
    if one is None or other is None:
        return one is other
    return bool((np.isnan(one) == np.isnan(other)).all())


def main(name: str) -> None:
    """Print how many cases of a type there were, and those that are wrong or fail."""
    blocks.SMALL = 0  # so that threads take part
    dtype = np.dtype(name)
    not_finite = not_finite_cases(dtype, 30, (1, 2, 9), (1, 2, 3, 17))
    suites = {True: chain(_finite(dtype), _refused(dtype)), False: not_finite}
    count = 0
    for finite, suite in suites.items():
        for case in suite:
            count += 1
            try:
                wrong = _wrong(case, finite=finite)
            except Exception:
                wrong = traceback.format_exc().splitlines()[-4:]
            if wrong:
                print(case, wrong[:3])
    print(count)
