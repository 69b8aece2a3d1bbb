"""Bounds of fast mode around exact results, and backends with divided rounding bounds."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray

from shared.promise.checking import OUTPUTS, Results, ball_results
from shared.promise.families import Case
from shared.promise.oracle import FORMATS, BallRow
from truenorm.kernels.reference import columns, tier1, tier2

Float64 = NDArray[np.float64]

SINGLE_U = 2.0**-24
PRECISION = 1200


def divide_reference_bounds(monkeypatch: pytest.MonkeyPatch, divisor: int) -> None:
    """Divide the rounding bounds of the reference backend."""
    rounded = columns.BoundedSum.rounded

    def smaller_sum(self: columns.BoundedSum, target: Any) -> Any:
        self._bound = self._bound / divisor
        return rounded(self, target)

    def smaller(test: Any) -> Any:
        return lambda z, bound, *rest: test(z, bound / divisor, *rest)

    for tier in (tier1, tier2):
        monkeypatch.setattr(tier, "rounding_test", smaller(tier.rounding_test))
    monkeypatch.setattr(columns.BoundedSum, "rounded", smaller_sum)


@contextmanager
def native_bounds_divided(divisor: int) -> Iterator[None]:
    """Divide the rounding bounds of the C core."""
    from truenorm.kernels.native import _core

    _core.scale_bounds(1 / divisor)
    try:
        yield
    finally:
        _core.scale_bounds(1.0)


def ulp(value: float, dtype: np.dtype[Any]) -> float:
    """Return the spacing of the type at a value."""
    target = FORMATS[dtype]
    exponent = math.frexp(value)[1] if value else -(10**6)
    return math.ldexp(1.0, max(exponent - target.precision, target.quantum))


def within(result: float, exact: arb, allowed: float, dtype: np.dtype[Any]) -> bool:
    """Return True if a result is within its bound; infinity is, beyond the largest number."""
    near = float(exact.mid())
    if math.isnan(allowed):  # 0 times infinity
        allowed = 0.0
    if not math.isfinite(result):
        return abs(near) + allowed >= float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
    return float(abs(arb(result) - exact).upper()) <= allowed * (1 + 1e-9) + ulp(near, dtype)


class FastBounds:
    """The exact results of a case and their bounds without the ulp, flat and by output."""

    def __init__(self, case: Case) -> None:
        self.exact: dict[str, list[arb]] = {}
        self.allowed: dict[str, list[float]] = {output: [] for output in OUTPUTS}
        self._k, self._u = (12, 2.0**-53) if case.x.dtype == np.float64 else (8, SINGLE_U)
        # A bound that overflows allows every result.
        with ctx.workprec(PRECISION), np.errstate(over="ignore", invalid="ignore"):
            self._fill(case)

    def _fill(self, case: Case) -> None:
        xs, dys = case.x.astype(np.float64).tolist(), case.dy.astype(np.float64).tolist()
        rows = [BallRow(x, case.eps, centred=case.centred) for x in xs]
        self.exact = {output: ball_results(case, rows, output) for output in OUTPUTS}
        gamma = case.parameters[0].astype(np.float64).tolist()
        dgamma_sums, dbeta_sums = np.zeros(len(gamma)), np.zeros(len(gamma))
        ku = self._k * self._u
        for row, dy in zip(rows, dys, strict=True):
            xhat, rho, dx_size = self._sizes(row, gamma, dy)
            self.allowed["y"] += (ku * np.abs(gamma) * (np.abs(xhat) + rho)).tolist()
            self.allowed["dx"] += (3 * ku * float(row.r.mid()) * dx_size).tolist()
            dgamma_sums += np.abs(dy) * (np.abs(xhat) + rho)
            dbeta_sums += np.abs(dy)
        dbeta_factor = 2.0**-43 if self._u == SINGLE_U else ku
        self.allowed["dgamma"] = (ku * dgamma_sums).tolist()
        self.allowed["dbeta"] = (dbeta_factor * dbeta_sums).tolist()

    @staticmethod
    def _sizes(
        row: BallRow, gamma: list[float], dy: list[float]
    ) -> tuple[Float64, float, Float64]:
        """Return xhat, rho and |g| + mean|g| + G*rho*(rho + |xhat|)."""
        xhat = np.array([float((c * row.r).mid()) for c in row.c])
        g = [abs(float((arb(a) * arb(b)).mid())) for a, b in zip(gamma, dy, strict=True)]
        size = np.array(g)
        rho = math.sqrt(float((xhat**2).mean()))
        largest = max(g) or 1.0
        rms = largest * math.sqrt(float(((size / largest) ** 2).mean()))
        return xhat, rho, size + size.mean() + rms * rho * (rho + np.abs(xhat))

    def violations(self, results: Results) -> list[tuple[str, int]]:
        """Return the outputs and flat indices of results outside their bounds."""
        violations = []
        with ctx.workprec(PRECISION):
            for output, result in zip(OUTPUTS, results, strict=True):
                if result is None:
                    continue
                values = result.astype(np.float64).ravel().tolist()
                elements = zip(values, self.exact[output], self.allowed[output], strict=True)
                for k, (value, exact, allowed) in enumerate(elements):
                    if not within(value, exact, allowed, result.dtype):
                        violations.append((output, k))
        return violations
