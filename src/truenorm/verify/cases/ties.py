"""Rows with an element whose xhat is next to the middle of two numbers of a type.

A sum in float32 that is taken in another order moves xhat by a few 2^-25, which a type of 16 bits
shows in one element of thousands; here, in every row.
"""

import numpy as np

from truenorm.verify.types import Float64s, dtype_of, ulps_of

__all__ = ["next_to_ties"]

FINE = 2
"""Elements of half a row that are chosen for the sum of squares: each gives it some more bits."""


def next_to_ties(
    random: "np.random.Generator", shape: tuple[int, ...], dtype: str, eps: float
) -> Float64s:
    """Return rows of noise and its opposite, whose mean is 0; in an odd width, with a zero."""
    size = shape[-1]
    x = _rounded(random.standard_normal((*shape[:-1], size // 2)), dtype)
    x[..., -FINE:] = 0.0
    total = (x * x).sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        xhat = np.abs(x) / np.sqrt(2 * total / size + eps)
        ulps = ulps_of(xhat, dtype)
        middle = (np.floor(xhat / ulps - 0.5) + 0.5) * ulps
        # With so much more as the sum of squares, this xhat is the next middle below.
        more = ((x / middle) ** 2 - eps) * size / 2 - total
    more = np.where(more > 0, more, np.inf).min(axis=-1, keepdims=True, initial=np.inf)
    more = np.where(np.isfinite(more), more, 0.0)
    for place in range(-FINE, 0):
        largest = _rounded(np.sqrt(more), dtype)
        largest -= np.where(largest * largest > more, ulps_of(largest, dtype), 0.0)
        x[..., place] = largest[..., 0]
        more = more - largest * largest
    return np.concatenate([x, -x, np.zeros((*shape[:-1], size % 2))], axis=-1)


def _rounded(values: Float64s, dtype: str) -> Float64s:
    narrow: Float64s = values.astype(dtype_of(dtype)).astype(np.float64)
    return narrow
