"""Places of the digits of dgamma and dbeta, in bytes and in words; ranges of both forms."""

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
from truenorm.kernels.tuning import LOWEST

Integers = NDArray[np.int64]

MOST_ROWS = 2**63 - 1
"""Words add up the rows of partials as int64."""

FIRST = LOWEST // BITS
LAST = (128 + 32 + 63) // BITS + 1
"""By (L1) a term is below 2**(128 + 32), as dy < 2**128 and sqrt(D) < 2**32. There are fewer than
2**63 rows. One place more takes the carry."""


def check_range(name: str, value: float, lowest: float, highest: float, remedy: str) -> None:
    """Raise ValueError unless a number is in its range; NaN is in none."""
    if not lowest <= value <= highest:
        raise ValueError(f"{name} must be from {lowest} to {highest}, got {value}: {remedy}")


class Places(NamedTuple):
    """Consecutive places of a sum."""

    first: int
    length: int

    def check(self, name: str, remedy: str) -> None:
        """Raise ValueError if no sum over rows can have digits at these places.

        So the integers that `rounded` computes with are short, and its time is bounded.
        """
        check_range(f"first place of {name}", self.first, FIRST, LAST, remedy)
        most = LAST + 1 - self.first
        check_range(f"number of places of {name}", self.length, 0, most, remedy)


def _widths(size: int) -> tuple[int, int]:
    """Return the number of digits a place: dgamma has one more, for the sum of units (L4)."""
    return size + 1, size


def count_digits(places: Sequence[Places], size: int) -> int:
    """Return the number of digits of dgamma and dbeta together."""
    return sum(each.length * width for each, width in zip(places, _widths(size), strict=True))


def numbers_of(digits: Integers, places: Sequence[Places], size: int) -> list[FixedPoint]:
    """Return dgamma and dbeta in canonical form, from the digits of one after the other."""
    numbers = []
    for (first, length), width in zip(places, _widths(size), strict=True):
        total = FixedPointSum(width)
        total.put(FixedPoint(first, digits[: length * width].reshape(length, width)))
        numbers.append(total.number())
        digits = digits[length * width :]
    return numbers


FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Kind:
    """Of which norm partials are, over rows of which shape and type, and of which parameters.

    Attributes
    ----------
    norm : Norm
        Whether rows are centred.
    eps : float
        What was added to the variance.
    lengths : tuple of int
        The shape of gamma and beta.
    x, gamma, beta : dtype or None
        Their types; None for a parameter that there is not.
    """

    norm: Norm
    eps: float
    lengths: tuple[int, ...]
    x: np.dtype[Any]
    gamma: np.dtype[Any] | None
    beta: np.dtype[Any] | None

    @classmethod
    def of(cls, saved: Saved) -> "Kind":
        """Return the kind of partials that backward of a call gives; refuse what has none."""
        settings: Settings = saved.settings
        if settings.rounding != "correct":
            raise ValueError(
                "forward was called with rounding='fast', and a partial is exact: call forward "
                "with rounding='correct'"
            )
        gamma = None if saved.gamma is None else saved.gamma.dtype
        x, beta = saved.x.dtype, saved.beta_dtype
        if not (x is gamma is FLOAT32 and (beta is None or beta is FLOAT32)):
            _check_types({"x": x, "gamma": gamma, "beta": beta})
            x = x.newbyteorder("=")
            gamma, beta = (
                None if each is None else each.newbyteorder("=") for each in (gamma, beta)
            )
        lengths = tuple(saved.x.shape[k] for k in saved.axes)
        # Partials with eps = -0.0 merge with those of 0.0, and must have the same bytes.
        return cls(settings.norm, abs(settings.eps), lengths, x, gamma, beta)

    @property
    def size(self) -> int:
        """How many columns there are."""
        return math.prod(self.lengths)

    def target(self, name: str) -> FloatFormat:
        """Return the format of gamma or of beta."""
        found = format_of(getattr(self, name))
        assert found is not None
        return found

    def check_same(self, other: "Kind") -> None:
        """Raise unless partials of the two kinds can be merged."""
        for name in ("norm", "eps", "lengths", "x", "gamma", "beta"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine != its:
                raise ValueError(
                    f"partials of different calls do not merge: {name} is {_word(mine)} here and "
                    f"{_word(its)} there"
                )


def _check_types(types: dict[str, np.dtype[Any] | None]) -> None:
    """Raise TypeError for float64."""
    for name, dtype in types.items():
        if dtype is not None and format_of(dtype) is FLOAT64:
            raise TypeError(
                f"{name} is float64, of which there are no partials: their terms would need "
                "128 bits and more (docs/scale.md). Pass float32 or smaller, or call backward "
                "with all rows at once"
            )


def _word(value: Any) -> Any:
    return value.name if isinstance(value, Norm | np.dtype) else value


MAGIC = b"truenorm partial"
VERSION = 2
HEADER = struct.Struct("<16sH4BdQiIiIB")
CHECKSUM = struct.Struct("<I")
TYPES = ("float16", "bfloat16", "float32")
TYPE_CODES = tuple(range(len(TYPES)))
NO_TYPE = 255
NORMS = (LAYER_NORM, RMS_NORM)
MOST_AXES = 64
"""Of an array of NumPy."""

REMEDY = "pass the bytes that tobytes returned"


def _code(dtype: np.dtype[Any] | None) -> int:
    return NO_TYPE if dtype is None else TYPES.index(dtype.name)


def _dtype(name: str, code: int) -> np.dtype[Any]:
    """Return the type with a code; NumPy knows bfloat16 once its package is imported."""
    if code not in TYPE_CODES:
        raise ValueError(f"type of {name} must be one of {TYPE_CODES}, got {code}: {REMEDY}")
    if TYPES[code] == "bfloat16":
        try:
            import ml_dtypes  # noqa: F401
        except ImportError as missing:
            raise ValueError(
                "bytes of bfloat16 must be read with ml_dtypes, which is not installed: "
                "pip install ml_dtypes"
            ) from missing
    return np.dtype(TYPES[code])


def encoded(
    kind: Kind, rows: int, dgamma: FixedPoint, dbeta: FixedPoint, special: NDArray[np.uint8]
) -> bytes:
    """Return the bytes of a partial."""
    header = HEADER.pack(
        MAGIC,
        VERSION,
        NORMS.index(kind.norm),
        *map(_code, (kind.x, kind.gamma, kind.beta)),
        kind.eps,
        rows,
        dgamma.first,
        len(dgamma.limbs),
        dbeta.first,
        len(dbeta.limbs),
        len(kind.lengths),
    )
    lengths = struct.pack(f"<{len(kind.lengths)}Q", *kind.lengths)
    numbers = (number.limbs.astype("<i4").tobytes() for number in (dgamma, dbeta))
    body = b"".join((header, lengths, *numbers, special.tobytes()))
    return body + CHECKSUM.pack(zlib.crc32(body))


def _check_least_length(data: bytes, expected: int) -> None:
    if len(data) < expected:
        raise ValueError(f"expected at least {expected} bytes, got {len(data)}: {REMEDY}")


def _kind(norm: int, eps: float, lengths: tuple[int, ...], x: int, *parameters: int) -> Kind:
    """Return the kind that a header describes; raise ValueError if there is none."""
    check_range("norm", norm, 0, len(NORMS) - 1, REMEDY)
    check_range("eps", eps, 0.0, sys.float_info.max, REMEDY)
    for k, length in enumerate(lengths):
        check_range(f"length of axis {k}", length, 1, sys.maxsize, REMEDY)
    gamma, beta = (
        None if code == NO_TYPE else _dtype(name, code)
        for name, code in zip(("gamma", "beta"), parameters, strict=True)
    )
    if NORMS[norm] is RMS_NORM and beta is not None:
        raise ValueError(f"rms_norm has no beta, got one of {beta}: {REMEDY}")
    return Kind(NORMS[norm], abs(eps), lengths, _dtype("x", x), gamma, beta)


def decoded(data: bytes) -> tuple[Kind, int, FixedPoint, FixedPoint, NDArray[np.uint8]]:
    """Return the fields of a partial; raise ValueError if bytes are damaged.

    The checksum finds every flipped bit. The ranges are checked as well, since other programs can
    write bytes with a valid checksum. Nothing is allocated before the length has been compared.
    """
    if not data.startswith(MAGIC):
        raise ValueError(
            f"expected bytes that begin with {MAGIC!r}, got {data[: len(MAGIC)]!r}: {REMEDY}"
        )
    _check_least_length(data, HEADER.size)
    _, version, norm, x, gamma, beta, eps, rows, *ends, axes = HEADER.unpack_from(data)
    if version != VERSION:
        raise ValueError(
            f"expected version {VERSION} of the format, got version {version}: compute the "
            "partial again, or call tobytes and frombuffer with the same version of truenorm"
        )
    # First: the product of so many lengths could have thousands of digits.
    check_range("number of axes", axes, 1, MOST_AXES, REMEDY)
    position = HEADER.size + 8 * axes
    _check_least_length(data, position)
    lengths = struct.unpack_from(f"<{axes}Q", data, HEADER.size)
    size = math.prod(lengths)
    places = Places(*ends[:2]), Places(*ends[2:])
    digits = count_digits(places, size)
    flags = position + 4 * digits
    end = flags + 2 * size
    if len(data) != end + CHECKSUM.size:
        raise ValueError(f"expected {end + CHECKSUM.size} bytes, got {len(data)}: {REMEDY}")
    (expected,), checksum = CHECKSUM.unpack_from(data, end), zlib.crc32(memoryview(data)[:end])
    if checksum != expected:
        raise ValueError(
            f"expected bytes with checksum {expected:#010x}, got {checksum:#010x}: the bytes are "
            f"damaged, {REMEDY}"
        )
    kind = _kind(norm, eps, lengths, x, gamma, beta)
    for name, each in zip(("dgamma", "dbeta"), places, strict=True):
        each.check(name, REMEDY)
    if kind.beta is None and places[1].length:
        raise ValueError(
            f"dbeta must have no places without beta, got {places[1].length}: {REMEDY}"
        )
    special = np.frombuffer(data, np.uint8, 2 * size, flags).reshape(2, size).copy()
    check_range("flags", int(special.max()), 0, int(IS_NAN), REMEDY)
    values = np.frombuffer(data, "<i4", digits, position).astype(np.int64)
    dgamma, dbeta = numbers_of(values, places, size)
    return kind, rows, dgamma, dbeta, special


MOST = 2**20
"""Partials in a sum. FixedPointSum would allow 2**31, counts of flags do not."""

EXTENT = 5
"""Numbers of an extent."""

NOWHERE = np.iinfo(np.int32).min
FLAGS, COUNT = 3, 21
"""Kinds of flags (+infinity, -infinity, NaN), and bits to count each of them with."""

WORDS_REMEDY = "pass the maximum of the extents of all ranks"


def extent(dgamma: FixedPoint, dbeta: FixedPoint, special: NDArray[np.uint8]) -> Integers:
    """Return numbers whose maximum over ranks tells which places some of them uses."""
    found = []
    for number in (dgamma, dbeta):
        used = len(number.limbs) > 0
        found += [-number.first, number.first + len(number.limbs)] if used else [NOWHERE] * 2
    return np.array([*found, special.any()], np.int64)


def as_words(
    rows: int, dgamma: FixedPoint, dbeta: FixedPoint, special: NDArray[np.uint8], agreed: Any
) -> Integers:
    """Return the words: 1, the number of rows, digits, and counts of terms that are not finite."""
    places, has_counts = _checked(agreed)
    words = [np.array([1, rows], np.int64)]
    for number, (first, length) in zip((dgamma, dbeta), places, strict=True):
        digits = np.zeros((length, number.limbs.shape[1]), np.int64)
        if len(number.limbs):
            start = number.first - first
            if start < 0 or start + len(number.limbs) > length:
                raise ValueError(
                    f"extent must cover all digits of the partial, got {first} to "
                    f"{first + length - 1}: {REMEDY}"
                )
            digits[start : start + len(number.limbs)] = number.limbs
        words.append(digits.ravel())
    if special.any() and not has_counts:
        raise ValueError(
            f"extent[4] must be 1, as the partial has terms that are not finite, got 0: {REMEDY}"
        )
    if has_counts:
        counts = np.zeros(special.shape, np.int64)
        for k in range(FLAGS):
            counts += (special >> k & 1).astype(np.int64) << COUNT * k
        words.append(counts.ravel())
    return np.concatenate(words)


def of_words(
    words: Any, agreed: Any, size: int
) -> tuple[int, FixedPoint, FixedPoint, NDArray[np.uint8]]:
    """Return rows, dgamma, dbeta and flags, of words that were added up."""
    places, has_counts = _checked(agreed)
    words = np.asarray(words)
    if words.dtype != np.int64:
        raise TypeError(f"words must be int64, got {words.dtype}: pass the sum of to_words")
    end = 2 + count_digits(places, size)
    expected = end + (2 * size if has_counts else 0)
    if words.shape != (expected,):
        raise ValueError(
            f"words must have shape ({expected},) for this extent, got {words.shape}: pass the "
            "extent that to_words was called with"
        )
    if not 1 <= words[0] <= MOST:
        raise OverflowError(
            f"words must be a sum of 1 to 2**20 partials, got {words[0]} partials: merge some of "
            "them by + before"
        )
    dgamma, dbeta = numbers_of(words[2:end], places, size)
    special = np.zeros((2, size), np.uint8)
    if has_counts:
        counted = words[end:].reshape(2, size)
        for k in range(FLAGS):
            special |= ((counted >> COUNT * k & (2**COUNT - 1)) != 0).astype(np.uint8) << k
    return int(words[1]), dgamma, dbeta, special


def _checked(agreed: Any) -> tuple[list[Places], bool]:
    """Return the places of dgamma and dbeta, and True if counts of flags follow the digits."""
    extent = np.asarray(agreed)
    if extent.dtype.kind not in "iu":
        raise TypeError(f"extent must be an array of integers, got {extent.dtype}: {REMEDY}")
    if extent.shape != (EXTENT,):
        raise ValueError(f"extent must have shape ({EXTENT},), got {extent.shape}: {REMEDY}")
    *ends, has_counts = extent.tolist()
    places = []
    for name, (below, last) in (("dgamma", ends[:2]), ("dbeta", ends[2:])):
        nowhere = below == last == NOWHERE
        places.append(Places(0, 0) if nowhere else Places(-below, below + last))
        places[-1].check(name, WORDS_REMEDY)
    check_range("extent[4]", has_counts, 0, 1, WORDS_REMEDY)
    return places, bool(has_counts)
