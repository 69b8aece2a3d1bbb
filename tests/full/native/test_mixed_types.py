"""Rows and parameters of different types: the C core has the bits of the reference backend.

The reference computes rows beside float64 parameters in double-double from the start, and integers
decide what is left: it shares no bound with the C core.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, both_passes, bytes_of, on_each_set
from shared.promise.families import DTYPES, X_FAMILIES, Case, CaseSpec, usual_case

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
SLOW = pytest.mark.slow(reason="ten million elements take minutes")
KINDS = ("random", "ones", "zeros")
SHAPES = ((1, 1), (40, 2), (9, 67), (70, 129), (300, 1024), (3, 4097), (2, 40_000))


def drawn(elements: int, seed: int) -> Iterator[Case]:
    """Yield random cases with so many elements, all with a parameter of another type."""
    random = np.random.default_rng(seed)
    pairs = [
        (x, gamma, beta)
        for x, gamma, beta in product(DTYPES, DTYPES, DTYPES)
        if FLOAT64 in (x, gamma, beta) and not x == gamma == beta
    ]
    while elements > 0:
        dtype, gamma, beta = pairs[random.integers(len(pairs))]
        rows, size = SHAPES[random.integers(len(SHAPES))]
        family = "normal" if rows * size > 10_000 else str(random.choice(list(X_FAMILIES)))
        spec = CaseSpec(
            family, rows, size, float(random.choice([0.0, 1e-5, 1.0])), "random",
            (str(random.choice(KINDS)), gamma), (str(random.choice(KINDS)), beta),
        )  # fmt: skip
        case = spec.build(dtype, int(random.integers(2**31)))
        elements -= rows * size
        yield case if random.random() < 0.7 else case.as_rms_norm()


@pytest.mark.parametrize("elements", [300_000, pytest.param(10_000_000, marks=SLOW)])
def test_drawn_cases(elements: int) -> None:
    for case in drawn(elements, elements):
        expected = bytes_of(*both_passes(case, "reference"))
        for threads in (1, 2):
            assert bytes_of(*both_passes(case, "native", threads=threads)) == expected, str(case)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_each_set_through_the_driver(dtype: np.dtype[Any]) -> None:
    """Columns in Fortran order are no plain arrays; nor are rows of more than a block."""
    for rows, size in ((9, 67), (300, 1024)):
        case = CaseSpec(
            "normal", rows, size, 1e-5, "random", ("random", FLOAT64), ("random", FLOAT64)
        ).build(dtype, 0)
        expected = bytes_of(*both_passes(case, "reference"))
        x, dy = (np.asfortranarray(each.T) for each in (case.x, case.dy))

        def along_first(x: Any = x, dy: Any = dy, case: Case = case) -> list[bytes]:
            y, saved = tn.layer_norm_forward(x, case.gamma, case.beta, axis=0, backend="native")
            dx, dgamma, dbeta = tn.layer_norm_backward(dy, saved, backend="native")
            return bytes_of(np.ascontiguousarray(y.T), np.ascontiguousarray(dx.T), dgamma, dbeta)

        for name, results in on_each_set("native", along_first).items():
            assert results == expected, name


@pytest.mark.parametrize("value", [2.0**-150, 2.0**128, 1e300, -np.inf, np.nan])
def test_parameters_beyond_float32(value: float) -> None:
    """The bounds of narrower rows do not hold for these: the reference computes the call."""
    case = usual_case("normal", 9, 67, FLOAT32)
    for k in (0, 1):
        gamma, beta = np.linspace(-1, 1, 67) / 3, np.linspace(1, 2, 67) / 3
        (gamma, beta)[k][5] = value
        other = Case(str(value), case.x, gamma, beta, case.dy, 1e-5)
        expected = bytes_of(*both_passes(other, "reference"))
        assert bytes_of(*both_passes(other, "native")) == expected
        assert bytes_of(*both_passes(other, "native", backward="reference")) == expected
        assert bytes_of(*both_passes(other, "reference", backward="native")) == expected


def test_g_that_is_constant_but_for_its_rounding() -> None:
    """Products that are equal as float64 numbers and differ exactly: dx is not zero."""
    x = np.random.default_rng(0).standard_normal((1, 5)).astype(np.float32)
    dy, gamma = np.full((1, 5), 1.25, np.float32), np.full(5, 1.75 + 2.0**-52)
    gamma[2] += 2.0**-52
    assert len(set((dy[0] * gamma).tolist())) == 1
    case = Case("nearly constant g", x, gamma, None, dy, 1e-5)
    expected = both_passes(case, "reference")
    assert (expected[1] != 0).all()
    for name, results in on_each_set("native", both_passes, case, "native").items():
        assert bytes_of(*results) == bytes_of(*expected), name
