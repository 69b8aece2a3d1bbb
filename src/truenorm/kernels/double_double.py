"""Double-double arithmetic: pairs of float64 that represent their unevaluated sum.

A pair (h, l) is normalized if h is the float64 nearest to h + l; all functions return such pairs.
The bounds are relative to the exact result, in units of W = u**2 = 2**-106, and are those of
Joldes, Muller and Popescu, *Tight and rigorous error bounds for basic building blocks of
double-word arithmetic* (ACM TOMS 44, 2017), rounded up. They hold where nothing over- or
underflows; callers scale their rows for that.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = Any
"""float64, or an array of them."""

Pair = tuple[Float, Float]

SPLITTER = 2.0**27 + 1

ABSENT = -(2**20)
"""The exponent of zero: below every other."""


def two_sum(a: Float, b: Float) -> Pair:
    """Return a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def fast_two_sum(a: Float, b: Float) -> Pair:
    """Return a + b exactly where |a| >= |b| (Dekker)."""
    s = a + b
    return s, b - (s - a)


def two_product(a: Float, b: Float) -> Pair:
    """Return a*b exactly (Dekker, Veltkamp): NumPy has no fused multiply-add."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    p = a * b
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


def _split(a: Float) -> Pair:
    t = SPLITTER * a
    high = t - (t - a)
    return high, a - high


def add(a: Pair, b: Pair) -> Pair:
    """Return the sum of two pairs: 3 W."""
    s, e = two_sum(a[0], b[0])
    t, f = two_sum(a[1], b[1])
    s, e = fast_two_sum(s, e + t)
    return fast_two_sum(s, e + f)


def add_float(a: Pair, b: Float) -> Pair:
    """Return the sum of a pair and a float64: 2 W."""
    s, e = two_sum(a[0], b)
    return fast_two_sum(s, a[1] + e)


def multiply(a: Pair, b: Pair) -> Pair:
    """Return the product of two pairs: 7 W."""
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def multiply_float(a: Pair, b: Float) -> Pair:
    """Return the product of a pair and a float64: 3 W."""
    p, e = two_product(a[0], b)
    return fast_two_sum(p, e + a[1] * b)


def divide_float(a: Pair, b: Float) -> Pair:
    """Return the quotient of a pair and a float64: 4 W."""
    q = a[0] / b
    p, e = two_product(q, b)
    return fast_two_sum(q, ((a[0] - p) - e + a[1]) / b)


def divide(a: Pair, b: Pair) -> Pair:
    """Return the quotient of two pairs: 15 W."""
    q = a[0] / b[0]
    p = multiply_float(b, q)
    return fast_two_sum(q, ((a[0] - p[0]) + (a[1] - p[1])) / b[0])


def inverse_root(a: Pair) -> Pair:
    """Return 1/sqrt of a positive pair: 32 W.

    Newton's step from r = 1/sqrt(h), which is good to 3 u: with e = 1 - a*r**2, |e| < 7 u, the
    exact result is r*(1 + e/2 + 3/8*e**2 + ...). e has an error of 7 W from the product and 7 W
    from the subtraction; the correction is a float64 of size 3.5 u, computed to 4 u.
    """
    r = 1 / np.sqrt(a[0])
    product = multiply(two_product(r, r), a)
    e = (1 - product[0]) - product[1]
    return fast_two_sum(r, r * (e * (0.5 + 0.375 * e)))


def tree_sum(a: Pair, axis: int) -> Pair:
    """Return the sum along an axis, which stays with length 1: 3 W * ceil(log2(n)) * sum|a|."""
    high, low = (np.moveaxis(part, axis, 0) for part in a)
    while (count := len(high)) > 1:
        half = (count + 1) // 2
        rest = count - half
        pair_high, pair_low = add((high[:rest], low[:rest]), (high[half:], low[half:]))
        if rest < half:
            pair_high = np.concatenate([pair_high, high[rest:half]])
            pair_low = np.concatenate([pair_low, low[rest:half]])
        high, low = pair_high, pair_low
    return np.moveaxis(high, 0, axis), np.moveaxis(low, 0, axis)


def exponent_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return e with 2**(e-1) <= |value| < 2**e, and a very small one for zero."""
    _, exponents = np.frexp(values)
    return np.where(values == 0, ABSENT, exponents).astype(np.int64)
