"""Patterns that fill the arrays of a case."""

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.tools.arguments import require_choice
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of

FINE = 2
"""Elements of half a row that are chosen for the sum of squares: each adds some bits."""


def _rounded(values: Float64s, dtype: str) -> Float64s:
    narrow: Float64s = values.astype(dtype_of(dtype)).astype(np.float64)
    return narrow


Number = float | str | Sequence[float | str]  # rows take the numbers of a list in turn
Pattern = Mapping[str, Any] | str
"""The name of one of `PATTERNS`; or a mapping with that name as ``pattern``, and its options.

All have ``clip``, the largest size of an element, and ``put``, a list such as
``[[2, 5, "nan"]]``: values put there in the end.
"""


@dataclass(frozen=True)
class _Place:
    """The array to fill, and the random generator."""

    random: "np.random.Generator"  # in quotes: importing numpy.random takes time
    shape: tuple[int, ...]
    dtype: str
    x: Array | None

    def normal(self) -> Float64s:
        return self.random.standard_normal(self.shape)

    def number(self, value: Number) -> Float64s:
        """Return a number, or a column with one number for each row."""
        if isinstance(value, float | int | str):
            return np.asarray(number(value, self.dtype))
        column = np.resize([number(each, self.dtype) for each in value], self.shape[:-1])
        return column[..., np.newaxis]

    def one_per_row(self) -> Float64s:
        """Return zeros with a single 1 in each row."""
        spots = self.random.integers(self.shape[-1], size=self.shape[:-1])
        return np.asarray(np.arange(self.shape[-1]) == spots[..., np.newaxis], np.float64)


def number(value: float | str, dtype: str) -> float:
    """Return a number that is given as a number, as a hex float, or by name.

    Examples
    --------
    >>> number("0x1.388p+15", "float32"), number("max", "float16")
    (40000.0, 65504.0)
    """
    kind = FORMATS[dtype]
    match value:
        case "max":
            return (2.0 - 2.0 ** (1 - kind.precision)) * 2.0 ** (kind.limit - 1)
        case "smallest":
            return 2.0**kind.quantum
        case "smallest-normal":
            return 2.0 ** (kind.quantum + kind.precision - 1)
        case str() if "x" in value:
            return float.fromhex(value)
    return float(value)


def _normal(place: _Place, offset: Number = 0.0, scale: Number = 1.0) -> Float64s:
    """Noise of a mean and a standard deviation."""
    return place.number(offset) + place.number(scale) * place.normal()


def _sorted(place: _Place, offset: Number = 0.0, scale: Number = 1.0) -> Float64s:
    """Noise in ascending order along each row."""
    return np.sort(_normal(place, offset, scale), axis=-1)


def _multiples(place: _Place, factors: Number = (1, -1, 2), offset: float = 0.0) -> Float64s:
    """One row of noise, times each of the factors in turn."""
    return place.number(factors) * (offset + place.random.standard_normal(place.shape[-1]))


def _values(place: _Place, values: Sequence[Any]) -> Float64s:
    """Literal numbers: one row, or several; repeated until the shape is filled."""
    rows = values if isinstance(values[0], list | tuple) else [values]
    table = np.array([[number(each, place.dtype) for each in row] for row in rows])
    if table.shape[1] != place.shape[-1]:
        raise ValueError(f"values must have rows of {place.shape[-1]}; got {table.shape[1]}")
    return np.resize(table, place.shape)


def _constant(place: _Place, value: Number) -> Float64s:
    """One value everywhere."""
    return np.broadcast_to(place.number(value), place.shape)


def _ramp(place: _Place, start: Number = 0.0, step: Number = 1.0) -> Float64s:
    """Each row is start, start + step, start + 2 step and so on."""
    row = place.number(start) + place.number(step) * np.arange(place.shape[-1])
    return np.broadcast_to(row, place.shape)


def _outlier(
    place: _Place, outlier: Number, offset: Number = 0.0, scale: Number = 1.0
) -> Float64s:
    """Noise, but one element of each row is the outlier."""
    return np.where(place.one_per_row(), place.number(outlier), _normal(place, offset, scale))


def _alternating(place: _Place, high: Number, ripple: Number = 0.0) -> Float64s:
    """High, -high, high and so on, each with a little noise."""
    signs = np.where(np.arange(place.shape[-1]) % 2, -1.0, 1.0)
    return signs * place.number(high) + place.number(ripple) * place.normal()


def _one_ulp_off(place: _Place, value: Number) -> Float64s:
    """One value everywhere, but its larger neighbour once in each row."""
    rounded = place.number(value).astype(dtype_of(place.dtype)).astype(np.float64)
    return rounded + ulps_of(rounded, place.dtype) * place.one_per_row()


def _decades(place: _Place, reach: Number, centre: Number = 1.0) -> Float64s:
    """Magnitudes evenly over some decades around the centre, shuffled, with random signs."""
    # Powers of two, since the bits of powers of ten depend on the machine.
    powers = place.number(reach) * np.linspace(-0.5, 0.5, place.shape[-1]) / math.log10(2)
    sizes = np.ldexp(1 + place.random.random(place.shape), np.rint(powers).astype(int))
    return place.random.permuted(sizes, axis=-1) * _signs(place, centre)


def _cancelling(place: _Place, scale: Number) -> Float64s:
    """Pairs of opposite numbers and a single 1, shuffled: the sum of each row is 1."""
    size = place.shape[-1]
    pairs = (size - 1) // 2
    noise = place.number(scale) * place.normal()[..., :pairs]
    rest = np.zeros((*place.shape[:-1], size - 2 * pairs))
    rest[..., 0] = 1.0
    return place.random.permuted(np.concatenate([noise, -noise, rest], axis=-1), axis=-1)


def _integers(place: _Place, limit: int) -> Float64s:
    """Whole numbers from -limit to limit."""
    return place.random.integers(-limit, limit, size=place.shape, endpoint=True).astype(float)


def _signs(place: _Place, value: Number) -> Float64s:
    """Plus or minus the value, at random."""
    return place.number(value) * np.sign(place.random.random(place.shape) - 0.5)


def _next_to_ties(place: _Place, eps: Number) -> Float64s:
    """Rows in which one xhat is next to a midpoint of the type.

    A float32 sum in another order changes xhat by a few 2^-25. A type of 16 bits shows that in one
    element of thousands; here, in every row. Rows are noise and its negative, so the mean is 0; of
    odd width, also a zero.
    """
    shape, dtype, eps = place.shape, place.dtype, float(place.number(eps))
    size = shape[-1]
    x = _rounded(place.random.standard_normal((*shape[:-1], size // 2)), dtype)
    x[..., -FINE:] = 0.0
    total = (x * x).sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        xhat = np.abs(x) / np.sqrt(2 * total / size + eps)
        ulps = ulps_of(xhat, dtype)
        midpoint = (np.floor(xhat / ulps - 0.5) + 0.5) * ulps
        # With this increment of the sum of squares, xhat is the next midpoint below.
        more = ((x / midpoint) ** 2 - eps) * size / 2 - total
    more = np.where(more > 0, more, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
    more = np.where(np.isfinite(more), more, 0.0)
    for position in range(-FINE, 0):
        largest = _rounded(np.sqrt(more), dtype)
        largest -= np.where(largest * largest > more, ulps_of(largest, dtype), 0.0)
        x[..., position] = largest[..., 0]
        more = more - largest * largest
    return np.concatenate([x, -x, np.zeros((*shape[:-1], size % 2))], axis=-1)


def _positive(place: _Place) -> Float64s:
    """Uniform between 0.5 and 1: nothing cancels in a sum."""
    return place.random.uniform(0.5, 1.0, place.shape)


def _proportional(place: _Place) -> Float64s:
    """Each row of x times a power of two, which is exact, so that its largest is about 1."""
    if place.x is None:
        raise ValueError("the pattern proportional needs x")
    x: Float64s = place.x.astype(np.float64)
    _, exponents = np.frexp(np.abs(x).max(axis=-1, keepdims=True))
    return np.asarray(np.ldexp(x, -exponents))


def _random(place: _Place) -> Float64s:
    """Parameters as training leaves them: around 1, every fifth one negative."""
    signs = np.where(np.arange(place.shape[-1]) % 5 == 3, -1.0, 1.0)
    return signs * (1.0 + 0.5 * place.normal())


def _one_zero(place: _Place) -> Float64s:
    """Random parameters, the first of which is 0."""
    values = _random(place)
    values[..., 0] = 0.0
    return values


def _tiny(place: _Place) -> Float64s:
    """Random parameters about half way, in exponents, from 1 to the smallest normal number."""
    kind = FORMATS[place.dtype]
    return np.ldexp(_random(place), (kind.quantum + kind.precision) // 2)


PATTERNS: dict[str, Callable[..., Float64s]] = {
    "normal": _normal,
    "sorted": _sorted,
    "multiples": _multiples,
    "values": _values,
    "constant": _constant,
    "ones": lambda place: _constant(place, 1.0),
    "zeros": lambda place: _constant(place, 0.0),
    "ramp": _ramp,
    "outlier": _outlier,
    "alternating": _alternating,
    "one-ulp-off": _one_ulp_off,
    "decades": _decades,
    "cancelling": _cancelling,
    "integers": _integers,
    "signs": _signs,
    "one-hot": _Place.one_per_row,
    "next-to-ties": _next_to_ties,
    "positive": _positive,
    "proportional": _proportional,
    "random": _random,
    "one-zero": _one_zero,
    "tiny": _tiny,
    "alternating-signs": lambda place: _alternating(place, 1.0),
    "large": lambda place: _normal(place, scale=1024.0),
}
"""By name: functions of the place to fill and of options."""


def filled(
    pattern: Pattern,
    dtype: str,
    shape: tuple[int, ...],
    seed: Sequence[int] | str,
    *,
    x: Array | None = None,
) -> Array:
    """Return an array of a pattern, clipped and rounded to a type.

    The last axis of the shape is a row. A seed that is a string is replaced by its checksum. `x`
    is the input, for a dy that depends on it.
    """
    options: dict[str, Any] = {"pattern": pattern} if isinstance(pattern, str) else dict(pattern)
    name, put = options.pop("pattern"), options.pop("put", ())
    require_choice("pattern", name, PATTERNS)
    entropy = zlib.crc32(seed.encode()) if isinstance(seed, str) else seed
    place = _Place(np.random.default_rng(entropy), shape, dtype, x)
    largest = number(options.pop("clip", "max"), dtype)
    with np.errstate(all="ignore"):  # the caller's settings must not matter
        values = np.clip(PATTERNS[name](place, **options), -largest, largest)
        result = values.astype(dtype_of(dtype))
    for *spot, value in put:
        result[tuple(spot)] = number(value, dtype)
    return result
