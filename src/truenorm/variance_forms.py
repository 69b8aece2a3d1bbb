"""Four algorithms for the variance of rows, for comparison.

All four are equal in exact arithmetic, (D3) of docs/learn/derivation.md, and compute in the
type of x. docs/learn/stability.md shows their results as the ratio of mean to standard deviation
grows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["corrected_two_pass", "one_pass", "two_pass", "welford"]

FloatArray = NDArray[np.floating[Any]]


def one_pass(x: FloatArray) -> FloatArray:
    """Compute mean(x**2) - mean(x)**2, which cancels and may even be negative.

    Its relative error grows like u*(mean/std)**2, where u is the unit roundoff.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> x = np.arange(5.0)  # the variance of 0, 1, 2, 3, 4 is 2
    >>> print(variance_forms.one_pass(x), variance_forms.one_pass(x + 1e9))
    2.0 0.0
    """
    mean = x.mean(axis=-1)
    variance: FloatArray = (x * x).mean(axis=-1) - mean * mean
    return variance


def two_pass(x: FloatArray) -> FloatArray:
    """Compute the mean of squared deviations, as `truenorm.textbook` does: never negative.

    An error d of the rounded mean adds d**2, which is visible once d is comparable to the
    standard deviation.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> print(variance_forms.two_pass(np.arange(5.0) + 1e14))
    2.0
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    variance: FloatArray = (centred * centred).mean(axis=-1)
    return variance


def corrected_two_pass(x: FloatArray) -> FloatArray:
    """Compute the mean of squared deviations, corrected for the error of the rounded mean.

    mean(c**2) - mean(c)**2 with c = x - mean: without rounding, mean(c) is 0; with rounding, it
    is the error d of the mean.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    A row of variance 2/9 whose mean, 10000000.67, is not a float32.

    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> x = np.array([1e7, 1e7 + 1, 1e7 + 1], dtype=np.float32)
    >>> print(variance_forms.two_pass(x), variance_forms.corrected_two_pass(x))
    0.6666667 0.22222221
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    mean_error = centred.mean(axis=-1)
    variance: FloatArray = (centred * centred).mean(axis=-1) - mean_error * mean_error
    return variance


def welford(x: FloatArray) -> FloatArray:
    """Update the mean and the sum of squared deviations element by element, in one pass.

    Its error grows like u*mean/std, and each step depends on the previous one.

    Parameters
    ----------
    x : ndarray
        Rows along the last axis.

    Returns
    -------
    ndarray
        The variance of each row, in the type of x.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm import variance_forms
    >>> print(variance_forms.welford(np.arange(5.0)))
    2.0
    """
    mean = np.zeros_like(x[..., 0])
    squares = np.zeros_like(mean)
    for count, column in enumerate(np.moveaxis(x, -1, 0), start=1):
        deviation = column - mean
        mean = mean + deviation / count
        squares = squares + deviation * (column - mean)
    variance: FloatArray = squares / x.shape[-1]
    return variance
