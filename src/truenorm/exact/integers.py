"""Floating-point numbers as integers over one power of two."""

from collections.abc import Iterable

__all__ = ["scaled_integers"]


def scaled_integers(values: Iterable[float]) -> tuple[list[int], int]:
    """Return integers n and one k >= 0 with values = n/2**k exactly.

    Examples
    --------
    >>> scaled_integers([0.5, -3.0, 0.0])
    ([1, -6, 0], 1)
    """
    ratios = [value.as_integer_ratio() for value in values]
    k = max((denominator.bit_length() - 1 for _, denominator in ratios), default=0)
    return [
        numerator << (k + 1 - denominator.bit_length()) for numerator, denominator in ratios
    ], k
