"""A norm that does not subtract the mean goes through the same driver, levels and kernels.

It has no public name yet. That its description reaches every kernel is seen by its bits: against
fractions, with 1/sqrt(w) exactly where it is rational, and else to 800 digits.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import isqrt
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from exact_row import Vector, dot, fractions, mean
from kernels.calls import each_family, parameter_for, rows_for
from promise.families import Array, usual_case
from promise.formats import FORMATS
from promise.judging import BACKENDS
from truenorm.dispatch import backend_named
from truenorm.kernels.backend import ColumnGradients
from truenorm.kernels.call import Settings
from truenorm.kernels.drive.backward import backward
from truenorm.kernels.drive.forward import forward
from truenorm.kernels.norm import Norm

NOT_CENTRED = Norm(centred=False)
FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class Call:
    """Forward, and then backward as often as one likes."""

    def __init__(self, x: Array, gamma: Array, beta: Array, eps: float, **options: Any) -> None:
        self.x, self.parameters = x, (parameter_for(gamma), parameter_for(beta))
        name = options.get("backend", "reference")
        self.settings = Settings(NOT_CENTRED, eps, options.get("rounding", "correct"), name)
        self.y = np.empty_like(x)
        with np.errstate(all="ignore"):
            self.kept = forward(
                backend_named(name), self.settings, rows_for(x), *self.parameters, rows_for(self.y)
            )

    def backward(self, dy: Array, name: str) -> tuple[Array, ColumnGradients]:
        dx = np.empty_like(self.x)
        with np.errstate(all="ignore"):
            sums = backward(
                backend_named(name),
                self.settings,
                rows_for(dy),
                rows_for(self.x),
                self.kept,
                *self.parameters,
                rows_for(dx),
            )
        return dx, sums


def exact(x: Array, gamma: Array, beta: Array, dy: Array, eps: float) -> tuple[Any, Any, Any]:
    """Return y, dx and dgamma as fractions."""
    scale, shift = fractions(gamma), fractions(beta)
    y, dx, terms = [], [], []
    for row_x, row_dy in zip(x, dy, strict=True):
        c = fractions(row_x)
        w = mean([value * value for value in c]) + Fraction(eps)
        r, slopes = inverse_root(w), fractions(row_dy)
        g: Vector = [a * b for a, b in zip(scale, slopes, strict=True)]
        q = dot(g, c) / len(c) / w
        y.append([a * value * r + b for a, value, b in zip(scale, c, shift, strict=True)])
        dx.append([r * (slope - value * q) for slope, value in zip(g, c, strict=True)])
        terms.append([slope * value * r for slope, value in zip(slopes, c, strict=True)])
    return y, dx, [sum(column, Fraction(0)) for column in zip(*terms, strict=True)]


def inverse_root(w: Fraction) -> Fraction:
    over, under = isqrt(w.numerator), isqrt(w.denominator)
    if over * over == w.numerator and under * under == w.denominator:
        return Fraction(under, over)
    with localcontext(prec=800):
        return Fraction(1 / (Decimal(w.numerator) / Decimal(w.denominator)).sqrt())


def rounded(values: Any, dtype: np.dtype[Any]) -> Array:
    """Round fractions once."""
    form = FORMATS[dtype]
    patterns = [
        [form.of_rational(fmpq(*each.as_integer_ratio())) for each in row] for row in values
    ]
    return np.array(patterns, form.storage).view(dtype)


def gated(*choice: Any) -> Any:
    """Leave to the slow session what would compile kernels for this norm alone, but float32's."""
    compiles = "fused" in choice and (FLOAT64 in choice or "fast" in choice)
    return pytest.param(*choice, marks=pytest.mark.slow) if compiles else choice


@pytest.mark.parametrize(
    ("backend", "dtype"), [gated(*each) for each in product(BACKENDS, [FLOAT32, FLOAT64])]
)
def test_correctly_rounded(backend: str, dtype: np.dtype[Any]) -> None:
    checked = 0
    for k, case in enumerate(each_family(dtype, 3, 1, 2, 5, 67)):
        # One kind of dy for each family, in turn.
        if k % 3 != k // 3 % 3 or (case.eps == 0 and not case.x.any(axis=1).all()):
            continue
        call = Call(case.x, *case.parameters, case.eps, backend=backend)
        dx, (dgamma, dbeta) = call.backward(case.dy, backend)
        assert dgamma is not None
        assert dbeta is not None
        y_exact, dx_exact, dgamma_exact = exact(case.x, *case.parameters, case.dy, case.eps)
        for found, expected in (
            (call.y, rounded(y_exact, dtype)),
            (dx, rounded(dx_exact, dtype)),
            (dgamma[np.newaxis], rounded([dgamma_exact], dtype).astype(np.float64)),
        ):
            assert np.array_equal(found, expected), str(case)
            checked += found.size
    assert checked > 2500


@pytest.mark.parametrize(
    ("backend", "rounding"), [gated(*each) for each in product(BACKENDS, ["fast"])]
)
def test_fast_mode(backend: str, rounding: str) -> None:
    case = usual_case("normal", 40, 129, FLOAT32)
    call = Call(case.x, *case.parameters, 1e-5, backend=backend, rounding=rounding)
    dx, (dgamma, _) = call.backward(case.dy, backend)
    right = Call(case.x, *case.parameters, 1e-5, backend="reference")
    right_dx, (right_dgamma, _) = right.backward(case.dy, "reference")
    for found, expected in ((call.y, right.y), (dx, right_dx), (dgamma, right_dgamma)):
        assert np.abs(found - expected).max() <= 2.0**-19 * np.abs(expected).max()  # type: ignore[operator, arg-type]


CHOICES = product([FLOAT32, FLOAT64], ["correct", "fast"], BACKENDS, BACKENDS)


@pytest.mark.parametrize(
    ("dtype", "rounding", "here", "there"), [gated(*each) for each in CHOICES]
)
def test_between_backends(dtype: np.dtype[Any], rounding: str, here: str, there: str) -> None:
    """What one keeps serves another; and the mean square says whether x is still the same."""
    case = usual_case("normal", 3, 67, dtype)
    call = Call(case.x.copy(), *case.parameters, 1e-5, backend=here, rounding=rounding)
    dx, _ = call.backward(case.dy, there)
    assert np.isfinite(dx).all()
    call.x[1, 3] += 1
    with pytest.raises(RuntimeError, match="x changed"):
        call.backward(case.dy, there)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_of_zeros_has_a_result_unless_eps_is_zero(backend: str) -> None:
    x = np.zeros((2, 5), np.float32)
    x[1] = 3  # constant, which is nothing special here
    ones = np.ones(5, np.float32)
    assert Call(x, ones, 0 * ones, 1e-5, backend=backend).y[0].tolist() == [0.0] * 5
    y = Call(x, ones, 0 * ones, 0.0, backend=backend).y
    assert np.isnan(y[0]).all()
    assert y[1].tolist() == [1.0] * 5
