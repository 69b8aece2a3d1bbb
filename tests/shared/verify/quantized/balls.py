"""An oracle for codes and scales of quantized norms: balls of python-flint and exact fractions.

It is written from the formulas, and shares no code with the package: values of codes come from
ml_dtypes, y = gain*c/sqrt(mean(c^2) + eps) + beta from balls. A number that 4000 bits do not
separate from a midpoint is a tie.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise

import numpy as np
from flint import arb, ctx, fmpq

from shared.verify.quantized.kernels import DTYPES, LARGEST, Array

PRECISIONS = (200, 4000)


@cache
def values_of(kind: str) -> list[Fraction]:
    """Return the finite values of a type in ascending order, without -0."""
    codes = np.arange(16 if kind == "e2m1" else 256, dtype=np.uint8)
    floats = codes.view(np.int8 if kind == "int8" else DTYPES[kind]).astype(np.float64)
    return sorted({Fraction(each) for each in floats.tolist() if np.isfinite(each)})


@cache
def codes_of(kind: str) -> dict[Fraction, int]:
    """Return the code of each finite value; 0 has the code 0."""
    size = 16 if kind == "e2m1" else 256
    codes = np.arange(size, dtype=np.uint8)
    floats = codes.view(np.int8 if kind == "int8" else DTYPES[kind]).astype(np.float64).tolist()
    finite = {code: Fraction(each) for code, each in enumerate(floats) if np.isfinite(each)}
    return {value: code for code, value in reversed(finite.items())}


def exactly(array: Array) -> list[Fraction]:
    return [Fraction(each) for each in array.astype(np.float64).ravel().tolist()]


def as_ball(number: Fraction) -> arb:
    return arb(fmpq(number.numerator, number.denominator))


@cache
def _saturated(kind: str, qmax: float) -> tuple[list[Fraction], list[arb]]:
    """Return the values up to qmax, and the midpoints of neighbours."""
    values = [each for each in values_of(kind) if abs(each) <= qmax]
    return values, [as_ball((a + b) / 2) for a, b in pairwise(values)]


def nearest(number: Callable[[], arb], kind: str, qmax: float = 0.0) -> Fraction:
    """Round a number to a type, ties to even codes, and saturate.

    `number` computes it at the precision of the context.
    """
    values, middles = _saturated(kind, qmax or LARGEST[kind])
    for bits in PRECISIONS:
        ctx.prec = bits
        ball = number()
        low, high = bisect_left(middles, ball.lower()), bisect_right(middles, ball.upper())
        if low == high:
            return values[low]
    assert high == low + 1, "a ball covers two midpoints"
    return min(values[low], values[high], key=lambda each: codes_of(kind)[each] & 1)


class Norm:
    """y of one case, element by element; `eps` and all inputs are exact numbers."""

    def __init__(
        self,
        x: Array,
        gamma: Array,
        eps: float,
        *,
        beta: Array | None = None,
        residual: Array | None = None,
        unrounded: bool = False,
        centred: bool = False,
        zero_centred: bool = False,
    ) -> None:
        self.eps = Fraction(eps)
        self.gain = [each + zero_centred for each in exactly(gamma)]
        self.beta = exactly(beta) if beta is not None else [Fraction(0)] * gamma.size
        self.rows = []
        for i, row in enumerate(x):
            numbers = exactly(row)
            if residual is not None:
                others = exactly(residual[i])
                numbers = [a + b for a, b in zip(numbers, others, strict=True)]
                if not unrounded:
                    numbers = [round_to(each, x.dtype.name) for each in numbers]
            mean = sum(numbers, Fraction(0)) / len(numbers) if centred else Fraction(0)
            self.rows.append([each - mean for each in numbers])
        self.squares = [
            sum((c * c for c in row), Fraction(0)) / len(row) + self.eps for row in self.rows
        ]

    def y(self, i: int, j: int) -> arb:
        ball = as_ball(self.gain[j] * self.rows[i][j]) / as_ball(self.squares[i]).sqrt()
        return ball + as_ball(self.beta[j])

    def elements(self) -> Iterator[tuple[int, int]]:
        return np.ndindex(len(self.rows), len(self.gain))

    def codes(self, factor: Callable[[int, int], Fraction], kind: str, qmax: float = 0.0) -> Array:
        """Return the value of each code; `factor` is that of y on the way to its code."""
        found = np.zeros((len(self.rows), len(self.gain)))
        for i, j in self.elements():
            by = factor(i, j)
            found[i, j] = float(nearest(lambda: self.y(i, j) * as_ball(by), kind, qmax))  # noqa: B023 (called at once)
        return found


FORMATS = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149)}
"""By type: the precision, and the exponent of the smallest number."""


def round_to(number: Fraction, dtype: str) -> Fraction:
    """Round a fraction to a type, ties to even, without overflow."""
    precision, quantum = FORMATS[dtype]
    if number == 0:
        return number
    exponent = abs(number.numerator).bit_length() - number.denominator.bit_length()
    exponent -= abs(number) < Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision + 1, quantum)
    return round(number / unit) * unit
