"""In correct mode all backends give the same bits; also if another one did forward.

The judge is not needed for that, so there are more shapes here, and larger ones: as many rows as a
kernel takes at once, one less and one more; widths on both sides of where sums are cut.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from promise.families import (
    ABSENT,
    DTYPES,
    DY_KINDS,
    EPSILONS,
    PARAMETER_KINDS,
    X_FAMILIES,
    Case,
    Choice,
)
from promise.hard_cases import OUTPUTS, hard_cases
from promise.judging import BACKENDS, both_passes, compare
from promise.suites import not_finite_cases

WIDTHS = (1, 2, 3, 5, 16, 17, 64, 67, 127, 128, 129, 513, 1000, 1024, 4096)
ROWS = (1, 2, 7, 8, 9, 40)
pytestmark = pytest.mark.skipif(len(BACKENDS) < 2, reason="needs two backends")


def choices(dtype: np.dtype[Any]) -> Iterator[Choice]:
    """Every shape, and every family at each number of rows; the rest goes round."""
    families, kinds = list(X_FAMILIES), list(DY_KINDS)
    parameters = [*PARAMETER_KINDS, ABSENT]
    shapes = [
        (rows, size, families[k % 23]) for k, (size, rows) in enumerate(product(WIDTHS, ROWS))
    ]
    shapes += [(rows, 67, family) for family, rows in product(families, (7, 9))]
    for k, (rows, size, family) in enumerate(shapes):
        # Two of three have parameters of their own type, as is usual.
        types = [dtype if k % 3 else DTYPES[(k // 3 + shift) % 4] for shift in (0, k // 12)]
        yield Choice(
            family,
            rows,
            size,
            EPSILONS[k // 5 % 6] if k % 2 else 1e-5,
            kinds[k // 7 % len(kinds)],
            (parameters[k // 2 % 6], types[0]),
            (parameters[k // 4 % 6], types[1]),
        )


def assert_same_bits(case: Case) -> None:
    """Hold every pair of backends against the reference."""
    expected = both_passes(case, "reference")
    for forward, backward in product(BACKENDS, BACKENDS):
        if forward == backward == "reference" or (forward != backward and case.x.size > 1000):
            continue  # the reference takes its time
        found = both_passes(case, forward, backward=backward)
        _, wrong = compare(case, found, expected, OUTPUTS, f"{forward}, then {backward}")
        assert not wrong, wrong


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(each, marks=pytest.mark.slow if each == "float64" else ()) for each in DTYPES],
    ids=str,
)
def test_families_and_shapes(dtype: np.dtype[Any]) -> None:
    for seed, choice in enumerate(choices(dtype)):
        assert_same_bits(choice.build(dtype, seed))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_families_and_shapes_of_rms_norm(dtype: np.dtype[Any]) -> None:
    for seed, choice in enumerate(choices(dtype)):
        assert_same_bits(choice.build(dtype, seed).of_rms_norm())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_refused_elements(dtype: np.dtype[Any]) -> None:
    for output in OUTPUTS:
        for case in hard_cases(output, dtype, 1000, seed=1):
            assert_same_bits(replace(case, columns=None))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite(dtype: np.dtype[Any]) -> None:
    for case in not_finite_cases(dtype, 60, ROWS, WIDTHS[:10]):
        assert_same_bits(case)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_finite_of_rms_norm(dtype: np.dtype[Any]) -> None:
    for case in not_finite_cases(dtype, 60, ROWS, WIDTHS[:10]):
        assert_same_bits(case.of_rms_norm())


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_parameters_beyond_the_type_of_x(dtype: np.dtype[Any]) -> None:
    """Results overflow, also where gamma is 0 and y is beta, rounded."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 9, 12)).astype(dtype)
    x[4] = 3  # a constant row
    for kind in (np.float32, np.float64):
        largest = np.finfo(kind).max
        gamma, beta = random.standard_normal((2, 12)).astype(kind)
        gamma[:6], beta[::3] = 0, largest
        gamma[9:], beta[1] = -largest, -largest
        with np.errstate(over="ignore"):
            assert_same_bits(Case(f"beyond {dtype.name}", x, gamma, beta, dy, 1e-5))
