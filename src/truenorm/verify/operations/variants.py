"""A case of plain layer or RMS normalization, as one of a relative: with the same row and gain.

So every row that broke somebody is put to all of them, and what is normalized is what it was: a
sum of two numbers, a gain less 1, parameters of another type.
"""

import zlib
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.cases.midpoints import NEXT_TO_MIDPOINTS
from truenorm.verify.cases.patterns import filled, number
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations.definition import Definition
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, unit_roundoff


def adapt_case(norm: Definition, plain: Case) -> Case:
    """Return a case as one of another norm."""
    once = plain.part(slice(0, plain.shape[0] // plain.repeats))
    inputs: dict[str, Array | None] = {"x": once.x, "dy": once.dy}
    if norm.adds and _must_stay(once):
        inputs["residual"], inputs["dsum"] = np.zeros_like(once.x), np.zeros_like(once.x)
    elif norm.adds:
        inputs["x"], inputs["residual"] = summands(once.x, once.dtype, once.name)
        inputs["dsum"] = _arriving(once)
    for name in norm.parameters:
        inputs[name] = _parameter(norm, once, name)
    in_order = {each.name: inputs[each.name] for each in norm.inputs}
    assert isinstance(norm, Operation)
    return replace(once, operation=norm, inputs=in_order).tiled(plain.repeats)


def _must_stay(plain: Case) -> bool:
    """Tell whether results are next to midpoints, and no longer so if anything is added."""
    return plain.family == NEXT_TO_MIDPOINTS


def _random(*seed: str) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(each.encode()) for each in seed])


def _parameter(norm: Definition, plain: Case, name: str) -> Array | None:
    """Return gamma or beta in its type, with digits that the type of x does not have."""
    kind = norm.parameter_type or plain.dtype
    if name not in plain.inputs:
        return filled(
            "zeros" if _must_stay(plain) else "normal",
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
        if FORMATS[kind].precision > FORMATS[of_given].precision and not _must_stay(plain):
            noise = _random(plain.name, name).uniform(-1, 1, values.shape)
            values = values * (1 + unit_roundoff(of_given) * noise)
        if name == "gamma" and norm.gain == "zero-centred":
            values = values - 1 if _must_stay(plain) else _less_one(values, plain.name)
        largest = number("max", kind)
        return np.where(np.isfinite(values), np.clip(values, -largest, largest), values).astype(
            dtype_of(kind)
        )


def _less_one(gain: Float64s, name: str) -> Float64s:
    """Return what 1 is added to for about this gain, with digits that the sum does not have."""
    noise = _random(name, "gain").uniform(-0.05, 0.05, gain.shape)
    return np.where(gain == 0, -1.0, (gain - 1) * (1 + noise))


@np.errstate(all="ignore")
def summands(total: Array, dtype: str, name: str) -> tuple[Array, Array]:
    """Return two arrays whose sum, rounded once, is this, and is not exact as a rule.

    One summand of each element is a small part of it, at random which: so it has digits beyond
    the last place of the sum. Where that does not give the sum, half of it and the rest may; else
    one summand is zero, as beside what is not finite.
    """
    kind, random = dtype_of(dtype), _random(name, "residual")
    wide = np.where(np.isfinite(total), total, 0).astype(np.float64)
    # Zeros are differences of what is of the size of their row.
    opposite = np.abs(wide).max(axis=-1, keepdims=True, initial=0.0)
    signs = np.sign(random.uniform(-1, 1, wide.shape))
    part = np.where(wide == 0, opposite * signs, wide * random.uniform(-0.45, 0.45, wide.shape))
    one, other, left = total, np.zeros_like(total), np.isfinite(total)
    for share in (part, wide / 2):
        small = share.astype(kind)
        large = (wide - small.astype(np.float64)).astype(kind)
        fits = left & (large + small == total)
        one, other = np.where(fits, large, one), np.where(fits, small, other)
        left &= ~fits
    swapped = random.uniform(size=wide.shape) < 0.5
    return np.where(swapped, other, one), np.where(swapped, one, other)


def _arriving(plain: Case) -> Array:
    """Return a gradient of the sum, about as large as what the norm adds to it."""
    noise = filled("normal", "float64", plain.shape, f"{plain.name} dsum")
    of_x = _exponents(plain.x, plain.eps**0.5)
    of_dy = _exponents(plain.dy)
    largest = number("max", plain.dtype) / 4
    with np.errstate(all="ignore"):
        scaled = np.clip(np.ldexp(noise, of_dy - of_x), -largest, largest)
        arriving: Array = scaled.astype(dtype_of(plain.dtype))
        return arriving


def _exponents(rows: Array, least: float = 0.0) -> NDArray[np.intc]:
    """Return that of the largest finite element of each row, as a column."""
    wide = rows.astype(np.float64)
    sizes = np.where(np.isfinite(wide), np.abs(wide), 0.0)
    exponents: NDArray[np.intc] = np.frexp(sizes.max(axis=-1, keepdims=True, initial=0.0) + least)[
        1
    ]
    return exponents
