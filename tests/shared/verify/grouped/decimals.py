"""Grouped norms in decimal numbers of 200 digits, each result rounded once.

The module decimal of Python shares no code with the judge, and rounds exp and sqrt correctly.
"""

import decimal
from decimal import Decimal
from typing import Any

import numpy as np

from shared.verify.grouped.kernels import Array, Textbook
from truenorm.verify.types import FORMATS

DIGITS = 200


class Decimals(Textbook):
    """The formulas of `Textbook` in decimal numbers."""

    def widen(self, array: Array) -> Array:
        """Return the same numbers as decimals."""
        return each(Decimal, array.astype(np.float64))

    def narrow(self, array: Array, kind: Any) -> Array:
        """Round once, ties to even."""
        return each(lambda value: nearest(value, kind.name), array).astype(np.float64)

    def results(self, inputs: dict[str, Array], eps: float) -> dict[str, Array]:
        norm = self.norm
        with decimal.localcontext(decimal.Context(prec=DIGITS, Emin=-(10**6), Emax=10**6)):
            given = [inputs[name] for name in norm.inputs_of("data", "parameter")]
            *forward, saved = self.forward(*given, eps)
            backward = self.backward(*(inputs[n] for n in norm.inputs_of("gradient")), saved)
        backward = backward if isinstance(backward, tuple) else (backward,)
        names = (*norm.outputs_of(backward=False), *norm.outputs_of(backward=True))
        return dict(zip(names, (*forward, *backward), strict=True))


def each(function: Any, array: Array) -> Array:
    results = np.empty(array.size, object)
    results[:] = [function(value) for value in array.reshape(-1).tolist()]
    return results.reshape(array.shape)


def nearest(value: Decimal, kind: str) -> float:
    """Return the number of a type that is nearest to a decimal, or the even one of two."""
    target = FORMATS[kind]
    _, exponent = np.frexp(float(value))
    ulp = Decimal(2) ** max(int(exponent) - target.precision, target.quantum)
    # Below a power of two, float(value) may be that power: then the ulp is half of this one.
    if abs(value) < Decimal(2) ** (int(exponent) - 1):
        ulp = max(ulp / 2, Decimal(2) ** target.quantum)
    steps = (value / ulp).to_integral_value(decimal.ROUND_HALF_EVEN)
    return float(steps * ulp)
