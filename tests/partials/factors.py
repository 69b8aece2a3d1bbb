"""What compiled kernels make of a row for the lattice, held against exact terms.

For a process in which Numba compiles nothing.
"""
# ruff: noqa: T201
# It prints how much of each bound was needed, and what is wrong.

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np

from partials.batches import NARROW, nasty_cases, partial_of
from partials.definition import Expected, Terms
from partials.midpoints import near_midpoints, scaled_term
from promise.families import EPSILONS, X_FAMILIES, Array, Case, Choice
from truenorm.kernels.fused.blocks import coded
from truenorm.kernels.fused.compiled.lattice import row as factors_of_rows
from truenorm.kernels.fused.compiled.lattice import terms as terms_of_rows
from truenorm.kernels.lattice.units import half_exponent_of_eps, half_exponent_of_size
from truenorm.kernels.storage import format_of

PLACE = 70
"""Bits behind the point that exact terms are known to, in units."""


def cases(sizes: tuple[int, ...]) -> Iterator[Case]:
    """Yield every family, of both norms, and rows that are worse."""
    for k, family in enumerate(X_FAMILIES):
        dtype, size = NARROW[2 if k % 3 else k // 3 % 2], sizes[k % len(sizes)]
        parameter = ("ones", dtype)
        choice = Choice(family, 2, size, EPSILONS[k % 3], "random", parameter, parameter)
        case = choice.build(dtype, k)
        yield from (case, case.of_rms_norm())
    for size in sizes:
        yield from nasty_cases(NARROW[2], 4, size, 6)


def each_row(case: Case) -> Iterator[tuple[Terms, Array, Array]]:
    """Yield the rows of finite numbers that have terms, exactly and as kernels take them."""
    target = format_of(case.x.dtype)
    assert target is not None
    for x, dy in zip(case.x, case.dy, strict=True):
        if not np.isfinite(np.concatenate([x, dy])).all():
            continue
        values, slopes = (array.astype(np.float64).tolist() for array in (x, dy))
        row = Terms(values, slopes, case.eps, case.centred)
        if row.unit is not None:
            held_dy, held_x = (coded(array.view(_held(array)), target) for array in (dy, x))
            yield row, held_dy, held_x


def _held(array: Array) -> Any:
    return np.uint16 if array.dtype.name == "bfloat16" else array.dtype


def factors(row: Terms, dy: Array, x: Array) -> Any:
    """Return what kernels make of a row, whose unit must be that of the definition."""
    centred = True if row.centred else None
    extent = factors_of_rows.extent_of(dy, x)
    halves = half_exponent_of_eps(row.eps), half_exponent_of_size(len(x))
    reach = factors_of_rows.reach_of(extent, centred)
    unit = factors_of_rows.unit_of(extent.dy, reach, *halves)
    if unit != row.unit:
        print("unit", unit, row)
    scratch = np.zeros(4 * factors_of_rows.LANES)
    return factors_of_rows.row_factors(x, extent, unit, row.eps, centred, scratch)


def share_of_bound(row: Terms, dy: Array, x: Array, columns: range) -> float:
    """Return how much of the bound a term needs at most."""
    found = factors(row, dy, x)
    if not found.bound < 2.0**-8:
        return 0.0
    worst = 0.0
    for j in columns:
        high, low = np.zeros((2, 1))
        one = slice(j, j + 1)
        far = terms_of_rows._added(
            dy[one], x[one], found, 1.0, True if row.centred else None, high, low
        )
        mean, _ = row.mean_and_w
        sign = 1 if Fraction(row.dy[j]) * (Fraction(row.x[j]) - mean) > 0 else -1
        exact = sign * Fraction(scaled_term(row, j, Fraction(row.dy[j]), PLACE), 2**PLACE)
        off = abs(abs(exact - Fraction(high[0]) - Fraction(low[0])) - Fraction(far))
        worst = max(worst, float(off / Fraction(found.bound)))
        if not abs(low[0]) <= 2.0**25 or not abs(high[0]) <= 2.0**64 + 2.0**24:
            print("bins", high, low, row)
    return worst


def check_bounds(*sizes: int) -> None:
    """Print how many rows there were, and the largest share of a bound that was needed."""
    count, worst = 0, (0.0, "")
    for case in cases(sizes):
        for row, dy, x in each_row(case):
            count += 1
            columns = range(0, len(x), -(-len(x) // 40))
            worst = max(worst, (share_of_bound(row, dy, x, columns), str(case)))
    print("share", count, *worst)


def check_undoing() -> None:
    """Print how many rows were taken back from bins, which must be as before."""
    random = np.random.default_rng(1)
    count = 0
    for case in cases((3, 17)):
        for row, dy, x in each_row(case):
            found = factors(row, dy, x)._replace(bound=2.0**-8 - 2.0**-50)
            bins = random.integers(-(2**51), 2**51, (2, len(x))).astype(np.float64)
            bins[0] *= 2.0**24
            before = bins.copy()
            centred = True if row.centred else None
            if not terms_of_rows._try_row(dy, x, found, centred, *bins):
                count += 1
                if bins.tobytes() != before.tobytes():
                    print("bins", row)
    print("undone", count)


def check_midpoints(divisor: float) -> None:
    """Print how many rows are wrong if bounds are divided by something."""
    original = factors_of_rows.row_factors

    def with_less(*arguments: Any) -> Any:
        found = original(*arguments)
        return found._replace(bound=found.bound / divisor)

    terms_of_rows.row_factors = with_less  # type: ignore[assignment, attr-defined]
    wrong = count = 0
    for case in midpoint_cases(40, 2.0**-32):
        count += len(case.x)
        wrong += partial_of(case, "fused").tobytes() != Expected(case).to_bytes()
    print("wrong", count, wrong)


def midpoint_cases(rows: int, within: float) -> Iterator[Case]:
    """Yield so many rows of both norms, each as a case, with terms near to midpoints."""
    for centred in (True, False):
        random = np.random.default_rng(8)
        found = near_midpoints(random, 11, within, centred=centred)
        for x, dy in islice(found, rows):
            gamma = np.ones(11, np.float32)
            yield Case("midpoint", x[None], gamma, None, dy[None], 1e-5, centred=centred)
