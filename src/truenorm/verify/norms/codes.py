"""Code types of quantized results: their values, rounding, cells and packing.

A code type has at most 256 codes, so one table of values describes it. The tables are computed
from the fields of a code, and share nothing with the conversions of another package.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.verify.types import Array, Float64s

Bytes = NDArray[np.uint8]


def _float_values(exponent_bits: int, digits: int, bias: int) -> Float64s:
    """Return the values of all codes of a float type: a sign, an exponent and some digits."""
    codes = np.arange(1 << (1 + exponent_bits + digits))
    exponents = (codes >> digits) & ((1 << exponent_bits) - 1)
    fractions = (codes & ((1 << digits) - 1)) / (1 << digits)
    sizes = np.where(
        exponents > 0,
        np.ldexp(1 + fractions, exponents - bias),
        np.ldexp(fractions, 1 - bias),
    )
    return np.where(codes >> (exponent_bits + digits), -sizes, sizes)


def _with(values: Float64s, special: dict[int, float]) -> Float64s:
    """Replace the values of some codes."""
    values = values.copy()
    for code, value in special.items():
        values[code] = value
    return values


@dataclass(frozen=True, eq=False)
class CodeType:
    """A type of codes; its finite values are multiples of 2**quantum.

    Attributes
    ----------
    name : str
    precision : int
        Bits of a normal value, including the leading one.
    quantum : int
        Exponent of the smallest positive value.
    largest : float
        Results beyond it are saturated.
    values : ndarray
        The value of each code, in float64.
    dtypes : tuple of str
        NumPy types of arrays that hold one code in each element.
    """

    name: str
    precision: int
    quantum: int
    largest: float
    values: Float64s = field(repr=False)
    dtypes: tuple[str, ...]

    @cached_property
    def format(self) -> FloatFormat:
        """The format for `truenorm.exact`, without saturation."""
        return FloatFormat(self.name, self.precision, self.quantum, 1023)

    @cached_property
    def sizes(self) -> Float64s:
        """The finite values from 0 on, in ascending order."""
        return np.unique(np.abs(self.values[np.isfinite(self.values)]))

    @cached_property
    def _boundaries(self) -> tuple[Float64s, Float64s]:
        """The ends of the cell of each of `sizes`."""
        middles = (self.sizes[1:] + self.sizes[:-1]) / 2
        low = np.concatenate([-middles[:1], middles])
        high = np.concatenate([middles, [np.inf]])
        return low, np.where(self.sizes >= self.largest, np.inf, high)

    def decode(self, codes: Array) -> Float64s:
        """Return the values of codes, given as bytes."""
        numbers: Float64s = self.values[codes.view(np.uint8) & (len(self.values) - 1)]
        return numbers

    def encode(self, values: Float64s) -> Bytes:
        """Return the codes of values of the type; NaN becomes the first code of NaN, or 0."""
        with np.errstate(invalid="ignore"):
            order = np.argsort(self.values, kind="stable")  # NaN is last
            order = order[~np.isnan(self.values[order])]
            places = np.searchsorted(self.values[order], np.where(np.isnan(values), 0.0, values))
            codes = order[np.minimum(places, len(order) - 1)]
            negative_zero = np.flatnonzero((self.values == 0) & np.signbit(self.values))
            zeros = np.where(np.signbit(values), negative_zero[0] if negative_zero.size else 0, 0)
            codes = np.where(values == 0, zeros, codes)
            nan = np.flatnonzero(np.isnan(self.values))
            codes = np.where(np.isnan(values), nan[0] if nan.size else 0, codes)
        return codes.astype(np.uint8)

    def nearest(self, numbers: Float64s) -> Float64s:
        """Round to the values of the type, ties to even, and saturate; NaN stays."""
        with np.errstate(invalid="ignore"):
            safe = np.clip(numbers, -2 * self.largest, 2 * self.largest)
            places = self._places(safe)
            rounded = np.ldexp(np.rint(np.ldexp(safe, -places)), places)
            return np.clip(rounded, -self.largest, self.largest)

    def steps(self, numbers: Float64s) -> Float64s:
        """Return the distance between values of the type at saturated numbers."""
        return np.ldexp(1.0, self._places(np.clip(numbers, -self.largest, self.largest)))

    def are_neighbours(self, values: Float64s, numbers: Float64s) -> NDArray[np.bool_]:
        """Return True for each value that equals a number or is the next value beside it."""
        sizes, last = np.abs(numbers), len(self.sizes) - 1
        above = self.sizes[np.minimum(np.searchsorted(self.sizes, sizes), last)]
        below = self.sizes[np.maximum(np.searchsorted(self.sizes, sizes, "right") - 1, 0)]
        signed = np.where(numbers < 0, -values, values)
        return np.asarray((signed == above) | (signed == below))

    def _places(self, numbers: Float64s) -> NDArray[np.intp]:
        _, exponents = np.frexp(np.where(np.isfinite(numbers), numbers, 0.0))
        places = np.maximum(exponents - self.precision, self.quantum)
        return np.where(numbers == 0, self.quantum, places)

    def cells(self, values: Float64s) -> tuple[Float64s, Float64s]:
        """Return the ends of the numbers that round to each value; NaN for non-finite values."""
        low, high = self._boundaries
        with np.errstate(invalid="ignore"):
            places = np.searchsorted(self.sizes, np.abs(values))
        places = np.minimum(places, len(self.sizes) - 1)
        ends = (
            np.where(values < 0, -high[places], low[places]),
            np.where(values < 0, -low[places], high[places]),
        )
        finite = np.isfinite(values)
        return np.where(finite, ends[0], np.nan), np.where(finite, ends[1], np.nan)


E4M3FN = CodeType(
    "e4m3fn",
    4,
    -9,
    448.0,
    _with(_float_values(4, 3, 7), {0x7F: np.nan, 0xFF: np.nan}),
    ("uint8", "float8_e4m3fn"),
)
E4M3FNUZ = CodeType(
    "e4m3fnuz",
    4,
    -10,
    240.0,
    _with(_float_values(4, 3, 8), {0x80: np.nan}),
    ("uint8", "float8_e4m3fnuz"),
)
E5M2 = CodeType(
    "e5m2",
    3,
    -16,
    57344.0,
    _with(
        _float_values(5, 2, 15),
        {
            sign | code: float("nan") if code > 0x7C else float("-inf" if sign else "inf")
            for sign in (0, 0x80)
            for code in range(0x7C, 0x80)
        },
    ),
    ("uint8", "float8_e5m2"),
)
E2M1 = CodeType("e2m1", 2, -1, 6.0, _float_values(2, 1, 1), ("uint8", "float4_e2m1fn"))
INT8 = CodeType(
    "int8",
    8,
    0,
    127.0,
    np.arange(256.0) - np.where(np.arange(256) > 127, 256.0, 0.0),
    ("int8", "uint8"),
)
E8M0 = CodeType(
    "e8m0",
    1,
    -127,
    2.0**127,
    _with(np.ldexp(1.0, np.arange(256) - 127), {0xFF: np.nan}),
    ("uint8", "float8_e8m0fnu"),
)
CODE_TYPES = {each.name: each for each in (E4M3FN, E4M3FNUZ, E5M2, INT8, E2M1)}
"""The types of codes of results, by name. E8M0 is a type of scales only."""


def packed(codes: Bytes, *, high_first: bool = False) -> Bytes:
    """Put two codes of four bits into each byte, by default the first into the low half.

    Examples
    --------
    >>> import numpy as np
    >>> packed(np.array([[1, 2]], np.uint8)).tolist()
    [[33]]
    """
    first, second = codes[..., 0::2], codes[..., 1::2]
    low, high = (second, first) if high_first else (first, second)
    return low + 16 * high


def unpacked(codes: Bytes, *, high_first: bool = False) -> Bytes:
    """Return one code of four bits in each element: the inverse of `packed`."""
    halves = (codes >> 4, codes & 15) if high_first else (codes & 15, codes >> 4)
    return np.stack(halves, axis=-1).reshape(*codes.shape[:-1], -1)


def unswizzled(scales: Array, rows: int, groups: int) -> Array:
    """Return block scales in rows, from the layout of blocks of 128 by 4 that tensor cores read.

    Parameters
    ----------
    scales : ndarray
        One byte for each scale, padded to multiples of 128 rows and of 4 groups. In a block, the
        scale of row r and group g is at ``(r % 32)*16 + (r // 32)*4 + g``.
    rows, groups : int
        The shape without padding.

    Returns
    -------
    ndarray
        Of shape (rows, groups).

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm.verify as tv
    >>> tv.unswizzled(np.arange(512, dtype=np.uint16), 128, 4)[:2].tolist()
    [[0, 1, 2, 3], [16, 17, 18, 19]]
    """
    down, across = -(-rows // 128), -(-groups // 4)
    if scales.size != down * across * 512:
        raise ValueError(
            f"scales must have {down * across * 512} elements for {rows} rows and {groups} "
            f"groups; got {scales.size}"
        )
    blocks = scales.reshape(down, across, 32, 4, 4).transpose(0, 3, 2, 1, 4)
    plain: Array = blocks.reshape(down * 128, across * 4)[:rows, :groups]
    return plain
