"""Mean and variance of rows in integers, each rounded once."""

from fractions import Fraction

import numpy as np

from truenorm.exact import ExactRow, round_ratio, scaled_integers
from truenorm.textbook import FloatArray
from truenorm.verify.types import FORMATS

__all__ = ["exact_variances", "rounded_means", "rounded_variances"]


def _rows(x: FloatArray) -> list[list[float]]:
    rows: list[list[float]] = x.astype(np.float64).tolist()
    return rows


def rounded_means(x: FloatArray) -> FloatArray:
    """Return the mean of each row (D1), correctly rounded to the type of x."""
    target = FORMATS[x.dtype.name]
    found = []
    for row in _rows(x):
        integers, k = scaled_integers(row)
        found.append(round_ratio(sum(integers), len(integers) << k, target))
    return np.array(found).astype(x.dtype)


def exact_variances(x: FloatArray) -> list[Fraction]:
    """Return the variance of each row (D3): w of (D4) without eps."""
    roots = [ExactRow(row, 0.0).root for row in _rows(x)]
    return [Fraction(root.numerator, root.denominator) for root in roots]


def rounded_variances(x: FloatArray) -> FloatArray:
    """Return the variance of each row, correctly rounded to the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.float32([[1e7, 1e7 + 1, 1e7 + 1]])
    >>> rounded_means(x).tolist(), rounded_variances(x).tolist() == [np.float32(2 / 9)]
    ([10000001.0], True)
    """
    target = FORMATS[x.dtype.name]
    exact = exact_variances(x)
    rounded = [round_ratio(each.numerator, each.denominator, target) for each in exact]
    return np.array(rounded).astype(x.dtype)
