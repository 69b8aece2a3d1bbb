"""Partials as int64 words whose sum over ranks is that of the merged partial.

Ranks first agree on the places by a maximum, so that all have as many words; then a sum of words
is all there is to merging.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.lattice.digits import Digits, Number

__all__ = ["as_words", "extent", "of_words"]

Integers = NDArray[np.int64]

MOST = 2**20
"""Partials in a sum. Digits would allow 2**31, counts of what is not finite do not."""

NOWHERE = np.iinfo(np.int32).min
FLAGS, COUNT = 3, 21
"""Kinds of what is not finite, and bits to count each of them with."""


def extent(dgamma: Number, dbeta: Number, special: NDArray[np.uint8]) -> Integers:
    """Return numbers whose maximum over ranks tells which places some of them uses."""
    found = []
    for number in (dgamma, dbeta):
        used = len(number.digits) > 0
        found += [-number.first, number.first + len(number.digits)] if used else [NOWHERE] * 2
    return np.array([*found, special.any()], np.int64)


def as_words(
    rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8], agreed: Integers
) -> Integers:
    """Return the words: 1, the number of rows, digits, and counts of what is not finite."""
    agreed = np.asarray(agreed, np.int64)
    words = [np.array([1, rows], np.int64)]
    for number, (first, places) in zip((dgamma, dbeta), _places(agreed), strict=True):
        digits = np.zeros((places, number.digits.shape[1]), np.int64)
        if len(number.digits):
            start = number.first - first
            if start < 0 or start + len(number.digits) > places:
                raise ValueError(
                    "the partial has digits outside of this extent: pass the maximum of the "
                    "extents of all ranks"
                )
            digits[start : start + len(number.digits)] = number.digits
        words.append(digits.ravel())
    if special.any() and not agreed[4]:
        raise ValueError(
            "the partial has terms that are not finite, of which this extent knows none: pass the "
            "maximum of the extents of all ranks"
        )
    if agreed[4]:
        counts = np.zeros(special.shape, np.int64)
        for k in range(FLAGS):
            counts += (special >> k & 1).astype(np.int64) << COUNT * k
        words.append(counts.ravel())
    return np.concatenate(words)


def of_words(
    words: Integers, agreed: Integers, size: int
) -> tuple[int, Number, Number, NDArray[np.uint8]]:
    """Return rows, dgamma, dbeta and what is not finite, of words that were added up."""
    words, agreed = np.asarray(words), np.asarray(agreed, np.int64)
    if words.dtype != np.int64:
        raise TypeError(f"words are {words.dtype}: pass the int64 that the sum of to_words is")
    columns = size + 1, size
    counts = [places * width for (_, places), width in zip(_places(agreed), columns, strict=True)]
    expected = 2 + sum(counts) + (2 * size if agreed[4] else 0)
    if words.shape != (expected,):
        raise ValueError(f"there are {words.size} words, and this extent has {expected}")
    if not 1 <= words[0] <= MOST:
        raise OverflowError(f"{words[0]} partials in a sum of words: at most 2**20 can be told")
    numbers, position = [], 2
    for (first, places), width in zip(_places(agreed), columns, strict=True):
        digits = Digits(width)
        part = words[position : position + places * width].reshape(places, width)
        digits.put(Number(first, part))
        numbers.append(digits.number())
        position += places * width
    special = np.zeros((2, size), np.uint8)
    if agreed[4]:
        counted = words[position:].reshape(2, size)
        for k in range(FLAGS):
            special |= ((counted >> COUNT * k & (2**COUNT - 1)) != 0).astype(np.uint8) << k
    return int(words[1]), numbers[0], numbers[1], special


def _places(agreed: Integers) -> list[tuple[int, int]]:
    """Return the first place and the number of places, of dgamma and of dbeta."""
    return [
        (0, 0) if last == NOWHERE else (-below, below + last)
        for below, last in (agreed[:2].tolist(), agreed[2:4].tolist())
    ]
