"""Partials as int64 words whose sum over ranks is that of the merged partial.

Ranks first agree on the places by a maximum, so that all have as many words; then a sum of words
is all there is to merging.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.lattice.digits import Number
from truenorm.partials.places import Places, check_range, count_digits, numbers_of

__all__ = ["EXTENT", "as_words", "extent", "of_words"]

Integers = NDArray[np.int64]

MOST = 2**20
"""Partials in a sum. Digits would allow 2**31, counts of flags do not."""

EXTENT = 5
"""Numbers of an extent."""

NOWHERE = np.iinfo(np.int32).min
FLAGS, COUNT = 3, 21
"""Kinds of flags (+infinity, -infinity, NaN), and bits to count each of them with."""

REMEDY = "pass the maximum of the extents of all ranks"


def extent(dgamma: Number, dbeta: Number, special: NDArray[np.uint8]) -> Integers:
    """Return numbers whose maximum over ranks tells which places some of them uses."""
    found = []
    for number in (dgamma, dbeta):
        used = len(number.digits) > 0
        found += [-number.first, number.first + len(number.digits)] if used else [NOWHERE] * 2
    return np.array([*found, special.any()], np.int64)


def as_words(
    rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8], agreed: Any
) -> Integers:
    """Return the words: 1, the number of rows, digits, and counts of terms that are not finite."""
    places, has_counts = _checked(agreed)
    words = [np.array([1, rows], np.int64)]
    for number, (first, length) in zip((dgamma, dbeta), places, strict=True):
        digits = np.zeros((length, number.digits.shape[1]), np.int64)
        if len(number.digits):
            start = number.first - first
            if start < 0 or start + len(number.digits) > length:
                raise ValueError(
                    f"extent must cover all digits of the partial, got {first} to "
                    f"{first + length - 1}: {REMEDY}"
                )
            digits[start : start + len(number.digits)] = number.digits
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


def of_words(words: Any, agreed: Any, size: int) -> tuple[int, Number, Number, NDArray[np.uint8]]:
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
        places[-1].check(name, REMEDY)
    check_range("extent[4]", has_counts, 0, 1, REMEDY)
    return places, bool(has_counts)
