"""Fast mode keeps the bounds that the promise gives it, on every family, at any condition."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from kinds import SETS_AND_TYPES
from promise.bounds.fast_bounds import SINGLE_U, FastBounds
from promise.families import Case
from promise.judging import OUTPUTS, both_passes
from promise.suites import cases


def assert_bounds(some: Iterable[Case], backends: Sequence[str]) -> None:
    """Of every backend, also where another one did forward: backward may not believe it."""
    checked = 0
    for case in some:
        if case.x.size > 2000 or case.has_undefined_rows:
            continue
        bounds = FastBounds(case)
        for forward, backward in product(backends, backends):
            wrong = bounds.violations(both_passes(case, forward, "fast", backward=backward))
            assert not wrong, (str(case), forward, backward, wrong[:5])
        checked += 1
    assert checked >= 25


@pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)
def test_bounds(backends: tuple[str, ...], dtype: np.dtype[Any]) -> None:
    assert_bounds(cases(dtype, 14_000), backends)


@pytest.mark.parametrize(("backends", "dtype"), SETS_AND_TYPES)
def test_bounds_of_rms_norm(backends: tuple[str, ...], dtype: np.dtype[Any]) -> None:
    assert_bounds((case.of_rms_norm() for case in cases(dtype, 14_000)), backends)


@pytest.mark.parametrize("output", OUTPUTS)
def test_twice_the_bound_is_seen(output: str) -> None:
    case = next(cases(np.float64, 0))  # where half an ulp is far below the bound
    bounds = FastBounds(case)
    results = [np.array(array) for array in both_passes(case, "reference", "fast")]
    assert bounds.violations(results) == []
    changed = results[OUTPUTS.index(output)]
    k = int(np.argmax(bounds.allowed[output]))
    changed.flat[k] += 2 * bounds.allowed[output][k] + np.spacing(abs(changed.flat[k]))
    assert bounds.violations(results) == [(output, k)]


def test_rows_too_small_for_float32(backend: str) -> None:
    """The spread of this row is a few subnormals: xhat is known, and its half an ulp is not."""
    x = (np.array([[1.0, 4.0]]) * 2.0**-149).astype(np.float32)
    y = tn.layer_norm(x, np.full(2, 2.0**60, np.float32), rounding="fast", backend=backend)
    exact = 1.5 * 2.0**-149 * 2.0**60 / math.sqrt(1e-5)
    assert np.abs(y / np.array([-exact, exact]) - 1).max() <= 16 * SINGLE_U


# The more rows are those of many blocks, and take seconds.
@pytest.mark.parametrize("rows", [2**15, pytest.param(2**22, marks=pytest.mark.slow)])
def test_dbeta_of_many_short_rows(backend: str, rows: int) -> None:
    """Added one after the other, the small ones would be lost; and so would blocks of them."""
    small = 2.0**-54 if rows == 2**15 else 2.0**-63
    dy = np.full((rows, 2), small, np.float32)
    dy[0], dy[-1] = 1, -1
    x = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
    ones = np.ones(2, np.float32)
    _, saved = tn.layer_norm_forward(x, ones, ones, rounding="fast", backend=backend)
    _, _, dbeta = tn.layer_norm_backward(dy, saved, backend=backend)
    assert dbeta is not None
    exact = (rows - 2) * small
    allowed = 2.0**-43 * (2 + exact) + np.spacing(np.float32(exact))
    assert (np.abs(dbeta.astype(np.float64) - exact) <= allowed).all()
