"""Two exchange forms of partial gradients: bytes (`encode`, `decode`) and int64 words.

Bytes go to files and other processes: a header, limbs as int32, flags and a checksum. Words go
through collectives that only add int64 arrays: the sum of the words of several partials is the
words of the merged partial. Both forms are checked before anything is computed with them.
"""

import math
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.api.saved import Saved
from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Norm, Settings
from truenorm.kernels.fixed_point import BITS, FixedPoint, FixedPointSum
from truenorm.kernels.rows import format_of
from truenorm.kernels.special import IS_NAN
from truenorm.kernels.tuning import LOWEST_UNIT

Integers = NDArray[np.int64]
Flags = NDArray[np.uint8]

NUMPY_FLOAT32 = np.dtype(np.float32)


def check_range(name: str, value: float, lowest: float, highest: float, remedy: str) -> None:
    """Raise ValueError unless a number is in its range; NaN is in none."""
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, got {value}: {remedy}")


@dataclass(frozen=True)
class Signature:
    """The properties that partials must share to be merged.

    Attributes
    ----------
    norm : Norm
        Layer norm or RMSNorm.
    eps : float
        The number added to the variance.
    shape : tuple of int
        The shape of gamma and beta.
    x, gamma, beta : dtype or None
        Their types; None for an absent parameter.
    """

    norm: Norm
    eps: float
    shape: tuple[int, ...]
    x: np.dtype[Any]
    gamma: np.dtype[Any] | None
    beta: np.dtype[Any] | None

    @classmethod
    def of(cls, saved: Saved) -> "Signature":
        """Return the signature of a call; raise if it has no partials."""
        settings: Settings = saved.settings
        if settings.rounding != "correct":
            raise ValueError(
                "forward was called with rounding='fast', and a partial is exact: call forward "
                "with rounding='correct'"
            )
        gamma = None if saved.gamma is None else saved.gamma.dtype
        x, beta = saved.x.dtype, saved.beta_dtype
        if not (x is gamma is NUMPY_FLOAT32 and (beta is None or beta is NUMPY_FLOAT32)):
            for name, dtype in {"x": x, "gamma": gamma, "beta": beta}.items():
                if dtype is not None and format_of(dtype) is FLOAT64:
                    raise TypeError(
                        f"{name} is float64, of which there are no partials: their terms would "
                        "need 128 bits and more (docs/inside/partials.md). Pass float32 or "
                        "smaller, or call backward with all rows at once"
                    )
            x = x.newbyteorder("=")
            gamma, beta = (
                None if dtype is None else dtype.newbyteorder("=") for dtype in (gamma, beta)
            )
        shape = tuple(saved.x.shape[k] for k in saved.axes)
        # Partials with eps = -0.0 merge with those of 0.0, and must have the same bytes.
        return cls(settings.norm, abs(settings.eps), shape, x, gamma, beta)

    @property
    def size(self) -> int:
        """Number of columns."""
        return math.prod(self.shape)

    def target(self, name: str) -> FloatFormat:
        """Return the format of gamma or of beta."""
        target = format_of(getattr(self, name))
        assert target is not None
        return target

    def check_same(self, other: "Signature") -> None:
        """Raise ValueError unless partials of the two signatures can be merged."""
        for name in ("norm", "eps", "shape", "x", "gamma", "beta"):
            mine, its = (
                value.name if isinstance(value, Norm | np.dtype) else value
                for value in (getattr(self, name), getattr(other, name))
            )
            if mine != its:
                raise ValueError(
                    f"partials of different calls do not merge: {name} is {mine} here and "
                    f"{its} there"
                )

    def __str__(self) -> str:
        """Describe every property, identically on every machine."""
        return (
            f"{self.norm.name} over {self.shape}, x {self.x}, gamma {self.gamma}, "
            f"beta {self.beta}, eps {float(self.eps)!r}"
        )


LOWEST_LIMB = LOWEST_UNIT // BITS
HIGHEST_LIMB = (128 + 32 + 63) // BITS + 1
"""By (L1) a term is below 2**(128 + 32), as dy < 2**128 and sqrt(D) < 2**32. There are fewer than
2**63 rows. One limb more takes the carry."""


class LimbRange(NamedTuple):
    """Positions of consecutive limbs of a fixed-point sum."""

    first: int
    length: int

    def check(self, name: str, remedy: str) -> None:
        """Raise ValueError if no sum over rows can have limbs at these positions.

        So the integers that `rounded` computes with are short, and its time is bounded.
        """
        check_range(f"first limb of {name}", self.first, LOWEST_LIMB, HIGHEST_LIMB, remedy)
        longest = HIGHEST_LIMB + 1 - self.first
        check_range(f"number of limbs of {name}", self.length, 0, longest, remedy)


def _widths(size: int) -> tuple[int, int]:
    """Return the columns of dgamma and dbeta: dgamma has one more, for the sum of units (L4)."""
    return size + 1, size


def _count_limbs(ranges: Sequence[LimbRange], size: int) -> int:
    """Return the number of int64 in the limbs of dgamma and dbeta together."""
    return sum(each.length * width for each, width in zip(ranges, _widths(size), strict=True))


def _split_limbs(limbs: Integers, ranges: Sequence[LimbRange], size: int) -> list[FixedPoint]:
    """Return dgamma and dbeta in canonical form, from their concatenated limbs."""
    numbers = []
    for (first, length), width in zip(ranges, _widths(size), strict=True):
        total = FixedPointSum(width)
        total.put(FixedPoint(first, limbs[: length * width].reshape(length, width)))
        numbers.append(total.number())
        limbs = limbs[length * width :]
    return numbers


MAGIC = b"truenorm partial"
VERSION = 2
HEADER = struct.Struct("<16sH4BdQiIiIB")
CHECKSUM = struct.Struct("<I")
TYPES = ("float16", "bfloat16", "float32")
TYPE_CODES = tuple(range(len(TYPES)))
NO_TYPE = 255
NORMS = (LAYER_NORM, RMS_NORM)
MAX_AXES = 64
"""Of a NumPy array."""

BYTES_REMEDY = "pass the bytes that tobytes returned"


def encode(
    signature: Signature, rows: int, dgamma: FixedPoint, dbeta: FixedPoint, special: Flags
) -> bytes:
    """Return the bytes of a partial."""
    types = (signature.x, signature.gamma, signature.beta)
    header = HEADER.pack(
        MAGIC,
        VERSION,
        NORMS.index(signature.norm),
        *(NO_TYPE if dtype is None else TYPES.index(dtype.name) for dtype in types),
        signature.eps,
        rows,
        dgamma.first,
        len(dgamma.limbs),
        dbeta.first,
        len(dbeta.limbs),
        len(signature.shape),
    )
    shape = struct.pack(f"<{len(signature.shape)}Q", *signature.shape)
    limbs = (number.limbs.astype("<i4").tobytes() for number in (dgamma, dbeta))
    body = b"".join((header, shape, *limbs, special.tobytes()))
    return body + CHECKSUM.pack(zlib.crc32(body))


def decode(data: bytes) -> tuple[Signature, int, FixedPoint, FixedPoint, Flags]:
    """Return the fields of a partial; raise ValueError if bytes are damaged.

    The checksum detects every flipped bit. The ranges are checked as well, since other programs
    can write bytes with a valid checksum. The length is compared before any allocation.
    """
    if not data.startswith(MAGIC):
        raise ValueError(
            f"expected bytes that begin with {MAGIC!r}, got {data[: len(MAGIC)]!r}: {BYTES_REMEDY}"
        )
    _check_least_length(data, HEADER.size)
    _, version, norm, x, gamma, beta, eps, rows, *ends, axes = HEADER.unpack_from(data)
    if version != VERSION:
        raise ValueError(
            f"expected version {VERSION} of the format, got version {version}: compute the "
            "partial again, or call tobytes and frombuffer with the same version of truenorm"
        )
    # First: the product of so many lengths could have thousands of digits.
    check_range("number of axes", axes, 1, MAX_AXES, BYTES_REMEDY)
    limbs_start = HEADER.size + 8 * axes
    _check_least_length(data, limbs_start)
    shape = struct.unpack_from(f"<{axes}Q", data, HEADER.size)
    size = math.prod(shape)
    ranges = LimbRange(*ends[:2]), LimbRange(*ends[2:])
    count = _count_limbs(ranges, size)
    flags_start = limbs_start + 4 * count
    end = flags_start + 2 * size
    if len(data) != end + CHECKSUM.size:
        raise ValueError(f"expected {end + CHECKSUM.size} bytes, got {len(data)}: {BYTES_REMEDY}")
    (expected,), checksum = CHECKSUM.unpack_from(data, end), zlib.crc32(memoryview(data)[:end])
    if checksum != expected:
        raise ValueError(
            f"expected bytes with checksum {expected:#010x}, got {checksum:#010x}: the bytes are "
            f"damaged, {BYTES_REMEDY}"
        )
    signature = _decode_signature(norm, eps, shape, x, gamma, beta)
    for name, each in zip(("dgamma", "dbeta"), ranges, strict=True):
        each.check(name, BYTES_REMEDY)
    if signature.beta is None and ranges[1].length:
        raise ValueError(
            f"dbeta must have no limbs without beta, got {ranges[1].length}: {BYTES_REMEDY}"
        )
    special = np.frombuffer(data, np.uint8, 2 * size, flags_start).reshape(2, size).copy()
    check_range("flags", int(special.max()), 0, int(IS_NAN), BYTES_REMEDY)
    limbs = np.frombuffer(data, "<i4", count, limbs_start).astype(np.int64)
    dgamma, dbeta = _split_limbs(limbs, ranges, size)
    return signature, rows, dgamma, dbeta, special


def _check_least_length(data: bytes, expected: int) -> None:
    if len(data) < expected:
        raise ValueError(f"expected at least {expected} bytes, got {len(data)}: {BYTES_REMEDY}")


def _decode_signature(
    norm: int, eps: float, shape: tuple[int, ...], x: int, *parameters: int
) -> Signature:
    """Return the signature in a header; raise ValueError if it is invalid."""
    check_range("norm", norm, 0, len(NORMS) - 1, BYTES_REMEDY)
    check_range("eps", eps, 0.0, sys.float_info.max, BYTES_REMEDY)
    for k, length in enumerate(shape):
        check_range(f"length of axis {k}", length, 1, sys.maxsize, BYTES_REMEDY)
    gamma, beta = (
        None if code == NO_TYPE else _decode_dtype(name, code)
        for name, code in zip(("gamma", "beta"), parameters, strict=True)
    )
    if NORMS[norm] is RMS_NORM and beta is not None:
        raise ValueError(f"rms_norm has no beta, got one of {beta}: {BYTES_REMEDY}")
    return Signature(NORMS[norm], abs(eps), shape, _decode_dtype("x", x), gamma, beta)


def _decode_dtype(name: str, code: int) -> np.dtype[Any]:
    if code not in TYPE_CODES:
        raise ValueError(f"type of {name} must be one of {TYPE_CODES}, got {code}: {BYTES_REMEDY}")
    if TYPES[code] == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401  # registers bfloat16 with NumPy
        except ImportError as missing:
            raise ValueError(
                "bytes of bfloat16 must be read with ml_dtypes, which is not installed: "
                "pip install ml_dtypes"
            ) from missing
    return np.dtype(TYPES[code])


MAX_ROWS = 2**63 - 1
"""Words add up the rows of partials as int64."""

MAX_PARTIALS = 2**20
"""Partials in a sum of words. FixedPointSum would allow 2**31, counts of flags do not."""

EXTENT_SIZE = 5
NO_LIMBS = np.iinfo(np.int32).min
FLAG_COUNT, COUNT_BITS = 3, 21
"""Kinds of flags (+infinity, -infinity, NaN), and the bits of the counter of each."""

EXTENT_REMEDY = "pass the maximum of the extents of all ranks"


def extent(dgamma: FixedPoint, dbeta: FixedPoint, special: Flags) -> Integers:
    """Return the limbs in use, such that the maximum over ranks covers all of them."""
    ends = []
    for number in (dgamma, dbeta):
        used = len(number.limbs) > 0
        ends += [-number.first, number.first + len(number.limbs)] if used else [NO_LIMBS] * 2
    return np.array([*ends, special.any()], np.int64)


def to_words(
    rows: int, dgamma: FixedPoint, dbeta: FixedPoint, special: Flags, extent: Any
) -> Integers:
    """Return the words: 1, the number of rows, limbs, and counts of non-finite terms."""
    ranges, has_counts = _check_extent(extent)
    words = [np.array([1, rows], np.int64)]
    for number, (first, length) in zip((dgamma, dbeta), ranges, strict=True):
        limbs = np.zeros((length, number.limbs.shape[1]), np.int64)
        if len(number.limbs):
            start = number.first - first
            if start < 0 or start + len(number.limbs) > length:
                raise ValueError(
                    f"extent must cover all limbs of the partial, got {first} to "
                    f"{first + length - 1}: {EXTENT_REMEDY}"
                )
            limbs[start : start + len(number.limbs)] = number.limbs
        words.append(limbs.ravel())
    if special.any() and not has_counts:
        raise ValueError(
            "extent[4] must be 1, as the partial has non-finite terms, got 0: " + EXTENT_REMEDY
        )
    if has_counts:
        counts = np.zeros(special.shape, np.int64)
        for k in range(FLAG_COUNT):
            counts += (special >> k & 1).astype(np.int64) << COUNT_BITS * k
        words.append(counts.ravel())
    return np.concatenate(words)


def from_words(words: Any, extent: Any, size: int) -> tuple[int, FixedPoint, FixedPoint, Flags]:
    """Return rows, dgamma, dbeta and flags, from a sum of words."""
    ranges, has_counts = _check_extent(extent)
    words = np.asarray(words)
    if words.dtype != np.int64:
        raise TypeError(f"words must be int64, got {words.dtype}: pass the sum of to_words")
    end = 2 + _count_limbs(ranges, size)
    expected = end + (2 * size if has_counts else 0)
    if words.shape != (expected,):
        raise ValueError(
            f"words must have shape ({expected},) for this extent, got {words.shape}: pass the "
            "extent that to_words was called with"
        )
    if not 1 <= words[0] <= MAX_PARTIALS:
        raise OverflowError(
            f"words must be a sum of 1 to 2**20 partials, got {words[0]} partials: merge some of "
            "them by + before"
        )
    dgamma, dbeta = _split_limbs(words[2:end], ranges, size)
    special = np.zeros((2, size), np.uint8)
    if has_counts:
        counts = words[end:].reshape(2, size)
        for k in range(FLAG_COUNT):
            has_flag = (counts >> COUNT_BITS * k & (2**COUNT_BITS - 1)) != 0
            special |= has_flag.astype(np.uint8) << k
    return int(words[1]), dgamma, dbeta, special


def _check_extent(extent: Any) -> tuple[list[LimbRange], bool]:
    """Return the limbs of dgamma and dbeta, and True if counts of flags follow them."""
    extent = np.asarray(extent)
    if extent.dtype.kind not in "iu":
        raise TypeError(
            f"extent must be an array of integers, got {extent.dtype}: {EXTENT_REMEDY}"
        )
    if extent.shape != (EXTENT_SIZE,):
        raise ValueError(
            f"extent must have shape ({EXTENT_SIZE},), got {extent.shape}: {EXTENT_REMEDY}"
        )
    *ends, has_counts = extent.tolist()
    ranges = []
    for name, (negative_first, end) in (("dgamma", ends[:2]), ("dbeta", ends[2:])):
        unused = negative_first == end == NO_LIMBS
        ranges.append(
            LimbRange(0, 0) if unused else LimbRange(-negative_first, negative_first + end)
        )
        ranges[-1].check(name, EXTENT_REMEDY)
    check_range("extent[4]", has_counts, 0, 1, EXTENT_REMEDY)
    return ranges, bool(has_counts)
