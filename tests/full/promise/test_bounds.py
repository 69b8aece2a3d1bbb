"""Error bounds: fast mode keeps its bounds, and a rounding test with too small a bound fails."""

import math
from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.bounds import (
    SINGLE_U,
    FastBounds,
    divide_reference_bounds,
    native_bounds_divided,
)
from shared.promise.cached_cases import some_cached_cases
from shared.promise.checking import BACKENDS, OUTPUTS, both_passes, check, on_each_set
from shared.promise.families import DTYPES, Case, cases, uneven_cases
from shared.promise.hard_cases import hard_cases, isolated_cases

ELEMENTS = 2000

both_norms = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])


@both_norms
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fast_mode(dtype: np.dtype[Any], *, centred: bool) -> None:
    """Check every backend, and backward after the forward pass of another backend."""
    checked = 0
    for layer_norm in cases(dtype, 14_000):
        case = layer_norm if centred else layer_norm.as_rms_norm()
        if case.x.size > 2000 or case.has_undefined_rows:
            continue
        bounds = FastBounds(case)
        for forward, backward in product(BACKENDS, BACKENDS):
            results = both_passes(case, forward, "fast", backward=backward)
            violations = bounds.violations(results)
            assert not violations, (str(case), forward, backward, violations[:5])
        checked += 1
    assert checked >= 25


@both_norms
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fast_mode_of_uneven_columns(dtype: np.dtype[Any], *, centred: bool) -> None:
    """Products of tiny and huge numbers leave the range of the arithmetic in some columns."""
    for layer_norm in uneven_cases(dtype):
        case = layer_norm if centred else layer_norm.as_rms_norm()
        bounds = FastBounds(case)
        for backend in BACKENDS:
            for name, results in on_each_set(backend, both_passes, case, backend, "fast").items():
                violations = bounds.violations(results)
                assert not violations, (str(case), name, violations[:5])


@pytest.mark.parametrize("output", OUTPUTS)
def test_twice_the_bound_is_detected(output: str) -> None:
    case = next(cases(np.float64, 0))  # where half an ulp is far below the bound
    bounds = FastBounds(case)
    results = [np.array(array) for array in both_passes(case, "reference", "fast")]
    assert bounds.violations(results) == []
    changed = results[OUTPUTS.index(output)]
    k = int(np.argmax(bounds.allowed[output]))
    changed.flat[k] += 2 * bounds.allowed[output][k] + np.spacing(abs(changed.flat[k]))
    assert bounds.violations(results) == [(output, k)]


def test_fast_mode_of_subnormal_rows(backend: str) -> None:
    """The spread of this row is a few subnormals of float32, so float32 cannot hold its mean."""
    x = (np.array([[1.0, 4.0]]) * 2.0**-149).astype(np.float32)
    y = tn.layer_norm(x, np.full(2, 2.0**60, np.float32), rounding="fast", backend=backend)
    exact = 1.5 * 2.0**-149 * 2.0**60 / math.sqrt(1e-5)
    assert np.abs(y / np.array([-exact, exact]) - 1).max() <= 16 * SINGLE_U


# 2^22 rows are many blocks, and take seconds.
@pytest.mark.parametrize(
    "rows",
    [2**15, pytest.param(2**22, marks=pytest.mark.slow(reason="four million rows take a minute"))],
)
def test_fast_dbeta_of_many_short_rows(backend: str, rows: int) -> None:
    """A plain sum loses the small terms between 1 and -1; a plain sum of blocks loses blocks."""
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


def assert_wrong_bits(
    output: str, dtype: Any, backend: str, *, centred: bool, isolated: bool = False
) -> None:
    """Expect a wrong bit in the output of a hard case; of the C core, with each set."""
    if not centred:
        hard: Iterable[Case] = hard_cases(output, dtype, ELEMENTS, centred=False)
    elif isolated and output == "y":
        hard = isolated_cases(some_cached_cases("y", dtype, 10_000), 500)
    else:
        hard = some_cached_cases(output, dtype, ELEMENTS)
    right = set(on_each_set(backend, bool))
    for case in hard:
        right -= {mismatch.backend for mismatch in check(case, [output], [backend])[1]}
        if not right:
            break
    assert not right


@both_norms
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
def test_reference_bounds_divided_by_64_are_detected(
    monkeypatch: pytest.MonkeyPatch, output: str, dtype: type[np.floating], *, centred: bool
) -> None:
    divide_reference_bounds(monkeypatch, 64)
    assert_wrong_bits(output, dtype, "reference", centred=centred)


@pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")
class TestDividedNativeBounds:
    @both_norms
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_float32(self, output: str, *, centred: bool) -> None:
        with native_bounds_divided(64):
            assert_wrong_bits(output, np.float32, "native", centred=centred)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_y_of_16_bits(self, dtype: str) -> None:
        """Test bound (C5) of float32 arithmetic; the other bounds are those of float32 rows."""
        with native_bounds_divided(64):
            assert_wrong_bits("y", dtype, "native", centred=True)

    @both_norms
    @pytest.mark.parametrize("output", ["y", "dx", "dgamma"])
    def test_float64(self, output: str, *, centred: bool) -> None:
        # Sums along a row count (n + 1)**2 errors of low parts, which hardly ever add up: with
        # bounds of y and dgamma divided by 64 all results are still right.
        with native_bounds_divided(1024):
            assert_wrong_bits(output, np.float64, "native", centred=centred, isolated=True)
