"""Places of the digits of dgamma and dbeta, in bytes and in words; ranges of both forms."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.ground import LOWEST
from truenorm.kernels.lattice.digits import BITS, Digits, Number

__all__ = ["MOST_ROWS", "Places", "check_range", "count_digits", "numbers_of"]

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


def numbers_of(digits: Integers, places: Sequence[Places], size: int) -> list[Number]:
    """Return dgamma and dbeta in canonical form, from the digits of one after the other."""
    numbers = []
    for (first, length), width in zip(places, _widths(size), strict=True):
        total = Digits(width)
        total.put(Number(first, digits[: length * width].reshape(length, width)))
        numbers.append(total.number())
        digits = digits[length * width :]
    return numbers
