"""Fast mode keeps the bounds that the promise gives it, on every family, at any condition."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from flint import arb, ctx

import truenorm as tn
from promise.families import DTYPES, Array, Case, cases
from promise.formats import FORMATS
from promise.rows import BallRow

SINGLE_U = 2.0**-24


def ulp(value: float, dtype: np.dtype[Any]) -> float:
    """Return the distance of numbers of the type around the value."""
    shape = FORMATS[dtype]
    exponent = math.frexp(value)[1] if value else -(10**6)
    return math.ldexp(1.0, max(exponent - shape.precision, shape.quantum))


def within(result: float, exact: arb, allowed: float, dtype: np.dtype[Any]) -> bool:
    """Compare with the exact value; beyond the largest number, infinity is right."""
    near = float(exact.mid())
    if math.isnan(allowed):  # 0 times infinity
        allowed = 0.0
    if not math.isfinite(result):
        return abs(near) + allowed >= float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return float(abs(arb(result) - exact).upper()) <= allowed * (1 + 1e-9) + ulp(near, dtype)


def check_case(case: Case, k: float, u: float) -> None:
    """Hold all four outputs to the bounds of docs/error-analysis.md, "Fast mode"."""
    y, saved = tn.layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps, rounding="fast")
    dx, dgamma, dbeta = tn.layer_norm_backward(case.dy, saved)
    rows, size = case.x.shape
    ones, zeros = np.ones(size), np.zeros(size)
    gamma = (ones if case.gamma is None else case.gamma.astype(np.float64)).tolist()
    beta = (zeros if case.beta is None else case.beta.astype(np.float64)).tolist()
    sums = {"dgamma": [arb(0)] * size, "dbeta": [arb(0)] * size}
    weights, plain = np.zeros(size), np.zeros(size)
    for i in range(rows):
        x, dy = case.x[i].astype(np.float64).tolist(), case.dy[i].astype(np.float64).tolist()
        row = BallRow(x, case.eps)
        r = float(row.r.mid())
        xhat = np.array([float((c * row.r).mid()) for c in row.c])
        g = [arb(a) * arb(b) for a, b in zip(gamma, dy, strict=True)]
        g_size = np.array([abs(float(value.mid())) for value in g])
        rho = math.sqrt(float((xhat**2).mean()))
        largest = float(g_size.max()) or 1.0
        g_rms = largest * math.sqrt(float(((g_size / largest) ** 2).mean()))
        tied = g_size + g_size.mean() + g_rms * rho * (rho + np.abs(xhat))
        exact_y = row.y(gamma, beta, range(size))
        exact_dx = row.dx(gamma, dy, range(size))
        for j in range(size):
            allowed = k * u * abs(gamma[j]) * (abs(xhat[j]) + rho)
            assert within(float(y[i, j]), exact_y[j], allowed, case.x.dtype), ("y", i, j)
            allowed = 3 * k * u * r * float(tied[j])
            assert within(float(dx[i, j]), exact_dx[j], allowed, case.x.dtype), ("dx", i, j)
            sums["dgamma"][j] += arb(dy[j]) * row.c[j] * row.r
            sums["dbeta"][j] += arb(dy[j])
        weights += np.abs(dy) * (np.abs(xhat) + rho)
        plain += np.abs(dy)
    beta_share = 2.0**-43 if u == SINGLE_U else k * u
    for name, result, share in (
        ("dgamma", dgamma, k * u * weights),
        ("dbeta", dbeta, beta_share * plain),
    ):
        if result is not None:
            for j in range(size):
                exact = sums[name][j]
                assert within(float(result[j]), exact, float(share[j]), result.dtype), (name, j)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bounds(dtype: np.dtype[Any]) -> None:
    k, u = (12, 2.0**-53) if dtype == np.float64 else (8, SINGLE_U)
    # A bound that overflows allows everything; the ulp of the result is still there.
    with ctx.workprec(1200), np.errstate(over="ignore"):
        for case in cases(dtype, 14_000):
            rows = case.x.astype(np.float64)
            constant = rows.max(axis=1) == rows.min(axis=1)
            if case.x.size <= 2000 and not (constant.any() and case.eps == 0):
                try:
                    check_case(case, k, u)
                except AssertionError as failed:
                    raise AssertionError(f"{case}: {failed}") from failed


def test_rows_too_small_for_float32() -> None:
    """The spread of this row is a few subnormals: xhat is known, and its half an ulp is not."""
    x = (np.array([[1.0, 4.0]]) * 2.0**-149).astype(np.float32)
    y = tn.layer_norm(x, np.full(2, 2.0**60, np.float32), rounding="fast")
    exact = 1.5 * 2.0**-149 * 2.0**60 / math.sqrt(1e-5)
    assert np.abs(y / np.array([-exact, exact]) - 1).max() <= 16 * SINGLE_U


def test_dbeta_of_many_short_rows() -> None:
    """32768 rows in one block: added one after the other, the small ones would be lost."""
    rows = 2**15
    dy = np.full((rows, 2), 2.0**-54, np.float32)
    dy[0], dy[-1] = 1, -1
    x = np.random.default_rng(0).standard_normal((rows, 2)).astype(np.float32)
    ones = np.ones(2, np.float32)
    _, saved = tn.layer_norm_forward(x, ones, ones, rounding="fast")
    _, _, dbeta = tn.layer_norm_backward(dy, saved)
    assert dbeta is not None
    exact = (rows - 2) * 2.0**-54
    allowed = 2.0**-43 * (2 + exact) + np.spacing(np.float32(exact))
    assert (np.abs(dbeta.astype(np.float64) - exact) <= allowed).all()


def test_fast_mode_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it correct mode in disguise, the bits would agree everywhere."""
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 1024)).astype(np.float32)

    def no_level_1(*_: Any) -> Array:
        raise AssertionError("correct mode was used")

    monkeypatch.setattr("truenorm.kernels.reference.correct.forward", no_level_1)
    tn.layer_norm(x, rounding="fast")
