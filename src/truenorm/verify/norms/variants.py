"""The cases of layer norm and RMSNorm, and of their variants, which adapt these cases.

The normalized rows and the gain stay the same: a row is split into x and a residual, 1 is
subtracted from a zero-centred gain, and parameters get another type. So each named case is a case
of every variant.
"""

import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.inputs.families import (
    EPSILONS,
    extensions,
    hard,
    ordinary,
    sweeps,
    to_float32,
)
from truenorm.verify.inputs.midpoints import NEXT_TO_MIDPOINTS, next_to_midpoints
from truenorm.verify.inputs.named import named_cases
from truenorm.verify.inputs.patterns import filled, number
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import MODEL_INPUT, Case
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, unit_roundoff

SMALLEST_WITHOUT_EPS = 2.0**-50


def plain_cases(norm: Norm, dtype: str, level: str, seed: int) -> Iterator[Case]:
    """Yield the cases of layer norm, RMSNorm or a variant: families of a seed come first."""
    if norm.plain is norm:
        yield from ordinary(norm, dtype, level, seed)
        if norm.centred:  # else a large mean is not hard
            yield from sweeps(norm, dtype, level, seed)
        yield from hard(norm, dtype, level, seed)
        yield from next_to_midpoints(norm, dtype, level, centred=norm.centred)
        yield from named_cases(norm, dtype)
        yield from extensions(norm, dtype, seed)
        return
    for case in norm.plain.cases(dtype, level, seed):
        if case.needs <= norm.extensions.keys():
            yield from within_limits(norm, adapt_case(norm, case))


def within_limits(norm: Norm, case: Case) -> Iterator[Case]:
    """Yield a case with the only eps of the kernel, unless it needs another eps or is too wide.

    If eps is 0, leave out rows that are constant or zero, or whose squares vanish in float32.
    """
    if norm.width is not None and case.shape[1] > norm.width:
        return
    if norm.eps is None:
        yield case
        return
    eps = to_float32(norm.eps)
    moved = eps != EPSILONS[0] and case.family == NEXT_TO_MIDPOINTS
    if case.eps != EPSILONS[0] or moved:
        return
    units = norm.geometry(case).units_of(case.x.reshape(case.shape)).astype(np.float64)
    with np.errstate(all="ignore"):
        sizes = np.ptp(units, axis=-1) if norm.centred else np.abs(units).max(axis=-1)
    if eps or not np.any(sizes < SMALLEST_WITHOUT_EPS):
        yield replace(case, eps=eps)


def adapt_case(norm: Norm, plain: Case) -> Case:
    """Return a plain case as a case of a variant."""
    once = plain.part(slice(0, plain.shape[0] // plain.repeats))
    inputs: dict[str, Array | None] = {"x": once.x, "dy": once.dy}
    if norm.adds and _at_midpoints(once):
        inputs["residual"], inputs["dsum"] = np.zeros_like(once.x), np.zeros_like(once.x)
    elif norm.adds:
        inputs["x"], inputs["residual"] = summands(once.x, once.dtype, once.name)
        inputs["dsum"] = _dsum(once)
    for name in norm.parameters:
        inputs[name] = _parameter(norm, once, name)
    in_order = {each.name: inputs[each.name] for each in norm.inputs}
    return replace(once, operation=norm, inputs=in_order).tiled(plain.repeats)


def _at_midpoints(plain: Case) -> bool:
    """Return True if results are next to midpoints: other inputs would move them."""
    return plain.family == NEXT_TO_MIDPOINTS


def _random(*seed: str) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(each.encode()) for each in seed])


def _parameter(norm: Norm, plain: Case, name: str) -> Array | None:
    """Return gamma or beta in its type, with more digits than numbers of the type of x."""
    kind = norm.parameter_type or plain.dtype
    if name not in plain.inputs:
        return filled(
            "zeros" if _at_midpoints(plain) else "normal",
            kind,
            plain.shape[1:],
            f"{plain.name} {name}",
        )
    given = plain.inputs[name]
    if given is None:
        return None
    of_given = given.dtype.name
    with np.errstate(all="ignore"):
        values: Float64s = given.astype(np.float64)
        if FORMATS[kind].precision > FORMATS[of_given].precision and not _at_midpoints(plain):
            noise = _random(plain.name, name).uniform(-1, 1, values.shape)
            values = values * (1 + unit_roundoff(of_given) * noise)
        if name == "gamma" and norm.gain == "zero-centred":
            values = values - 1 if _at_midpoints(plain) else _less_one(values, plain.name)
        largest = number("max", kind)
        return np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(
            dtype_of(kind)
        )


def _less_one(gain: Float64s, name: str) -> Float64s:
    """Return a gamma with 1 + gamma near the gain, and with more digits than the sum."""
    noise = _random(name, "gain").uniform(-0.05, 0.05, gain.shape)
    return np.where(gain == 0, -1.0, (gain - 1) * (1 + noise))


@np.errstate(all="ignore")
def summands(total: Array, dtype: str, name: str) -> tuple[Array, Array]:
    """Split an array into two summands whose sum rounds to it, mostly inexactly.

    One summand, chosen at random, is a small part of each element, with digits below the last
    place of the sum. Where the sum does not round to the element, try two halves. Where halves
    fail, and where the element is not finite, one summand is zero. Both summands of an element
    in the default domain are in the domain.
    """
    kind, random = dtype_of(dtype), _random(name, "residual")
    wide = np.where(np.isfinite(total), total, 0).astype(np.float64)
    # A zero is the difference of two numbers of the size of its row.
    opposite = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    signs = np.sign(random.uniform(-1, 1, wide.shape))
    shares = random.uniform(-0.45, 0.45, wide.shape)
    limit = MODEL_INPUT.largest
    outside = (np.abs(wide) <= limit) & (np.abs(wide * (1 - shares)) > limit)
    shares = np.where(outside, -shares, shares)
    part = np.where(wide == 0, opposite * signs, wide * shares)
    one, other, left = total, np.zeros_like(total), np.isfinite(total)
    for share in (part, wide / 2):
        small = share.astype(kind)
        large = (wide - small.astype(np.float64)).astype(kind)
        fits = left & (large + small == total)
        one, other = np.where(fits, large, one), np.where(fits, small, other)
        left &= ~fits
    swapped = random.uniform(size=wide.shape) < 0.5
    return np.where(swapped, other, one), np.where(swapped, one, other)


def _dsum(plain: Case) -> Array:
    """Return a gradient of the sum, about as large as the gradient of the norm."""
    noise = filled("normal", "float64", plain.shape, f"{plain.name} dsum")
    of_x = _exponents(plain.x, plain.eps**0.5)
    of_dy = _exponents(plain.dy)
    largest = number("max", plain.dtype) / 4
    with np.errstate(all="ignore"):
        scaled = np.clip(np.ldexp(noise, of_dy - of_x), -largest, largest)
        dsum: Array = scaled.astype(dtype_of(plain.dtype))
        return dsum


def _exponents(rows: Array, least: float = 0.0) -> NDArray[np.intc]:
    """Return the exponent of the largest finite element of each row, as a column."""
    wide = rows.astype(np.float64)
    sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    exponents: NDArray[np.intc] = np.frexp(sizes.max(axis=-1, keepdims=True, initial=0.0) + least)[
        1
    ]
    return exponents
