"""Pairs of float64 that stand for their unevaluated sum: `kernels.double_double`, compiled.

Here the error of a product takes one instruction, since processors have a fused multiply-add. The
bounds are those of `kernels.double_double`, in units of W = 2**-106. Nothing here is contracted.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from truenorm.kernels.fused.compiling import PART, compiled
from truenorm.kernels.ground import Pair

__all__ = [
    "add",
    "add_float",
    "divide",
    "divide_float",
    "inverse_root",
    "multiply",
    "multiply_add",
    "multiply_float",
    "power_of_two",
    "rounded_to_odd",
    "two_product",
    "two_sum",
]


def multiply_add(a: float, b: float, c: float) -> Any:
    """Return a*b + c, rounded once."""
    if not math.isfinite(a * b + c):
        return a * b + c
    return np.float64(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c)))


def product_error(a: float, b: float, product: float) -> Any:
    """Return a*b - product, rounded once."""
    if not math.isfinite(product):
        return -product
    return np.float64(Fraction(float(a)) * Fraction(float(b)) - Fraction(float(product)))


@intrinsic
def _multiply_add(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
    """Return a*b + c, rounded once, in one instruction where the processor has it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


@overload(multiply_add, strict=False, jit_options=PART)
def _multiply_add_once(a: Any, b: Any, c: Any) -> Any:
    return lambda a, b, c: _multiply_add(a, b, c)  # type: ignore[call-arg]


@overload(product_error, strict=False, jit_options=PART)
def _product_error(a: Any, b: Any, product: Any) -> Any:
    return lambda a, b, product: _multiply_add(a, b, -product)  # type: ignore[call-arg]


@compiled(inline="always")
def two_sum(a: float, b: float) -> Any:
    """Return a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@compiled(inline="always")
def fast_two_sum(a: float, b: float) -> Any:
    """Return a + b exactly where |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


@compiled(inline="always")
def two_product(a: float, b: float) -> Any:
    """Return a*b exactly, where nothing underflows."""
    p = a * b
    return p, product_error(a, b, p)


@compiled(inline="always")
def add(a: Pair, b: Pair) -> Any:
    """Return the sum of two pairs: 3 W."""
    s, e = two_sum(a[0], b[0])
    t, f = two_sum(a[1], b[1])
    s, e = fast_two_sum(s, e + t)
    return fast_two_sum(s, e + f)


@compiled(inline="always")
def add_float(a: Pair, b: float) -> Any:
    """Return the sum of a pair and a float64: 2 W."""
    s, e = two_sum(a[0], b)
    return fast_two_sum(s, a[1] + e)


@compiled(inline="always")
def multiply(a: Pair, b: Pair) -> Any:
    """Return the product of two pairs: 7 W."""
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


@compiled(inline="always")
def multiply_float(a: Pair, b: float) -> Any:
    """Return the product of a pair and a float64: 3 W."""
    p, e = two_product(a[0], b)
    return fast_two_sum(p, e + a[1] * b)


@compiled(inline="always")
def divide_float(a: Pair, b: float) -> Any:
    """Return the quotient of a pair and a float64: 4 W."""
    q = a[0] / b
    p, e = two_product(q, b)
    return fast_two_sum(q, ((a[0] - p) - e + a[1]) / b)


@compiled(inline="always")
def divide(a: Pair, b: Pair) -> Any:
    """Return the quotient of two pairs: 15 W."""
    q = a[0] / b[0]
    p = multiply_float(b, q)
    return fast_two_sum(q, ((a[0] - p[0]) + (a[1] - p[1])) / b[0])


@compiled(inline="always")
def inverse_root(a: Pair) -> Any:
    """Return 1/sqrt of a positive pair: 32 W, by Newton's step from that of its high part."""
    r = 1 / np.sqrt(a[0])
    product = multiply(two_product(r, r), a)
    e = (1 - product[0]) - product[1]
    return fast_two_sum(r, r * (e * (0.5 + 0.375 * e)))


@compiled(inline="always")
def power_of_two(exponent: int) -> Any:
    """Return 2**exponent; 0 or infinity where float64 ends."""
    return np.ldexp(1.0, min(max(exponent, -2200), 2200))


@compiled(inline="always")
def rounded_to_odd(high: float, low: float) -> Any:
    """Return high + low as a float64 from which one more rounding, to fewer bits, is the only one.

    If the sum is not a float64, the one beside it whose last bit is 1.
    """
    s, e = two_sum(high, low)
    bits = np.float64(s).view(np.int64)
    outward = (e > 0) == (s > 0)
    step = np.int64(1) if outward else np.int64(-1)
    odd = bits if (bits & 1) == 1 or e == 0 else bits + step
    return np.int64(odd).view(np.float64)
