"""Cases for partials: batches with rows of many kinds, and rows with a term near a midpoint."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import isqrt
from typing import Any

import numpy as np

import truenorm as tn
from shared.partials.definition import Terms
from shared.promise.checking import forward_pass
from shared.promise.families import DTYPES, Array, Case, cases, full_range_cases, non_finite_cases

NARROW = DTYPES[:3]
"""The types that partials support."""

EPSILONS = (1e-5, 0.0, 1e30, 5e-324, 1.0, 1e-40, 1e300)


def partial_of(
    case: Case, backend: str, *, forward: str | None = None, threads: int | None = None
) -> tn.PartialGradients:
    """Return the partial of all rows; `forward` may be another backend."""
    _, saved = forward_pass(case, forward or backend)
    backward = tn.layer_norm_backward_partial if case.centred else tn.rms_norm_backward_partial
    return backward(case.dy, saved, backend=backend, threads=threads)[1]


def merge_at_random(
    parts: list[tn.PartialGradients], random: np.random.Generator
) -> tn.PartialGradients:
    """Merge partials two at a time, in a random tree."""
    parts = list(parts)
    while len(parts) > 1:
        i, j = random.permutation(len(parts))[:2].tolist()
        total = parts[i] + parts[j]
        parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [total]
    return parts[0]


def _narrow(array: Array | None) -> Array | None:
    """Return a parameter in a type that partials support."""
    if array is None or array.dtype != np.float64:
        return array
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def promise_cases(dtype: np.dtype[Any], elements: int) -> Iterator[Case]:
    """Yield the small cases of the promise, for both norms."""
    small = [
        *(case for case in cases(dtype, 0) if case.x.size <= elements),
        *full_range_cases(dtype, 40),
        *non_finite_cases(dtype, 40, (1, 2, 7), (1, 2, 3, 17)),
    ]
    for case in small:
        narrow = replace(case, gamma=_narrow(case.gamma), beta=_narrow(case.beta))
        yield narrow
        yield narrow.as_rms_norm()


def mixed_cases(dtype: np.dtype[Any], rows: int, size: int, count: int) -> Iterator[Case]:
    """Yield batches with rows of different kinds: offsets, constants, subnormals, infinities."""
    top = float(np.finfo(np.float32).max) if dtype.itemsize == 4 else 3e4
    tiny = 2.0**-149 if dtype.itemsize == 4 else 2.0**-24
    random = np.random.default_rng([7, size, DTYPES.index(dtype)])

    def draw(shape: tuple[int, ...]) -> Array:
        z = random.standard_normal(shape)
        scale = 10.0 ** random.uniform(-18, 18, shape)
        kinds: list[Array] = [
            z,
            random.choice([1e4, 1e7]) + z,
            z * scale,
            np.full(shape, 3.0),
            np.copysign(0.0, z),
            z * tiny * 4,
            z * top,
            random.integers(-3, 4, shape).astype(np.float64),
            z * 10.0 ** random.uniform(-40, 38),
            np.where(random.random(shape) < 0.8, 0.0, z),
        ]
        return kinds[int(random.integers(len(kinds)))]

    def batch() -> Array:
        values = np.stack([draw((size,)) for _ in range(rows)])
        if random.random() < 0.3:
            values[:, random.integers(size)] = 0.0
        if random.random() < 0.2:  # rows that cancel each other
            values[rows // 2 :] = -values[: rows - rows // 2]
        with np.errstate(all="ignore"):
            array: Array = np.clip(values, -top, top).astype(dtype)
        if random.random() < 0.15:
            array[random.integers(rows), random.integers(size)] = random.choice(
                [np.inf, -np.inf, np.nan]
            )
        return array

    for k in range(count):
        kinds = [NARROW[random.integers(3)] if random.random() < 0.8 else None for _ in range(2)]
        gamma, beta = (
            None if kind is None else random.standard_normal(size).astype(kind) for kind in kinds
        )
        name = f"{dtype.name} mixed {rows}x{size} {k}"
        case = Case(name, batch(), gamma, beta, batch(), EPSILONS[k % len(EPSILONS)])
        yield case if k % 2 else case.as_rms_norm()


FRACTION_BITS = 120
"""Fraction bits of alpha."""


def first_within(a: int, modulus: int, low: int, high: int) -> int | None:
    """Return the smallest m >= 0 with low <= a*m mod modulus <= high, where low > 0."""
    a %= modulus
    if a == 0:
        return None
    if 2 * a > modulus:
        return first_within(modulus - a, modulus, modulus - high, modulus - low)
    m = -(-low // a)
    if a * m <= high:
        return m
    # The first wrap around the modulus with a multiple of a in the interval.
    wraps = first_within(a - modulus % a, a, low % a, high % a)
    return None if wraps is None else -(-(low + modulus * wraps) // a)


def near_midpoints(
    random: np.random.Generator, size: int, within: float, *, centred: bool
) -> Iterator[tuple[Array, Array]]:
    """Yield float32 rows x and dy with one term within `within` of a midpoint of integers.

    dy is m*2**k with 2**23 <= m < 2**24, so m*alpha must be near a half modulo 1. The first such m
    is found by Euclid's algorithm, as fast as a greatest common divisor.
    """
    while True:
        x = (random.standard_normal(size) + 100).astype(np.float32)
        dy = random.uniform(2.0**23, 2.0**24, size).astype(np.float32)
        row = Terms(x.astype(float).tolist(), dy.astype(float).tolist(), 1e-5, centred)
        for j in range(size):
            m = _multiple(row, j, within)
            if m is not None:
                dy[j] = m
                yield x, dy
                break


def _multiple(row: Terms, j: int, within: float) -> int | None:
    """Return the dy of a column that moves its term near a midpoint."""
    alpha = scaled_term(row, j, Fraction(1), FRACTION_BITS)
    modulus, half, reach = (
        2**FRACTION_BITS,
        2 ** (FRACTION_BITS - 1),
        int(within * 2**FRACTION_BITS),
    )
    start = half - (alpha << 23)
    low = (start - reach) % modulus
    offset = first_within(alpha, modulus, low, low + 2 * reach) if low else None
    return 2**23 + offset if offset is not None and offset < 2**23 else None


def scaled_term(row: Terms, j: int, dy: Fraction, bits: int) -> int:
    """Return |dy*c*r| in units times 2**bits, rounded down."""
    assert row.unit is not None
    mean, w = row.mean_and_w
    size = abs(dy * (Fraction(row.x[j]) - mean)) * Fraction(2) ** (bits - row.unit)
    square = size * size / w
    return isqrt(square.numerator // square.denominator)
