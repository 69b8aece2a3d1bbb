"""Fast mode, backward: dx of one row, or of four at once, in float32."""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single, encode_single
from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Coded, Numbers

__all__ = ["HIGH", "LOW", "SINGLE", "SINGLES", "A", "Q", "R", "write_four", "write_single"]

HIGH, LOW, R, A, Q, SINGLE = range(6)
"""The float32 numbers of a row that its elements need; SINGLE says that there are such."""

SINGLES = 8


@compiled(inline="always")
def _singles(rows: Numbers, k: int) -> Any:
    """Return the numbers of a row in float32."""
    row = rows[k * SINGLES :]
    high, low, r = np.float32(row[HIGH]), np.float32(row[LOW]), np.float32(row[R])
    return high, low, r, np.float32(row[A]), np.float32(row[Q])


@compiled
def write_single(
    x: Coded, dy: Coded, gamma: Numbers, row: Numbers, dx: Coded, dgamma: Numbers, dbeta: Numbers
) -> None:
    """Write dx of a row, and add to the sums of its columns."""
    prefer_wide_vectors()
    arrays_are_apart()
    high, low, r, a, q = _singles(row, 0)
    like = dx[0]
    for j in range(gamma.shape[0]):
        c = (decode_single(x[j]) - high) - low
        slope = decode_single(dy[j])
        dx[j] = encode_single(r * ((slope * gamma[j] - a) - c * q), like)
        wide = np.float64(slope)  # a term may be larger than float32 allows, and its sum not
        dgamma[j] += wide * np.float64(c * r)
        dbeta[j] += wide


@compiled
def write_four(
    x0: Coded,
    x1: Coded,
    x2: Coded,
    x3: Coded,
    dy0: Coded,
    dy1: Coded,
    dy2: Coded,
    dy3: Coded,
    gamma: Numbers,
    rows: Numbers,
    dx0: Coded,
    dx1: Coded,
    dx2: Coded,
    dx3: Coded,
    dgamma: Numbers,
    dbeta: Numbers,
) -> None:
    """Do the same for four rows at once: gamma and the sums are loaded and stored once.

    dx must not depend on the company a row is in: it has the bits of `_write_single`, since
    nothing is contracted, that is no product rounded together with a sum.
    """
    prefer_wide_vectors()
    arrays_are_apart()
    high0, low0, r0, a0, q0 = _singles(rows, 0)
    high1, low1, r1, a1, q1 = _singles(rows, 1)
    high2, low2, r2, a2, q2 = _singles(rows, 2)
    high3, low3, r3, a3, q3 = _singles(rows, 3)
    like = dx0[0]
    for j in range(gamma.shape[0]):
        scale = gamma[j]
        c0, slope0 = (decode_single(x0[j]) - high0) - low0, decode_single(dy0[j])
        c1, slope1 = (decode_single(x1[j]) - high1) - low1, decode_single(dy1[j])
        c2, slope2 = (decode_single(x2[j]) - high2) - low2, decode_single(dy2[j])
        c3, slope3 = (decode_single(x3[j]) - high3) - low3, decode_single(dy3[j])
        dx0[j] = encode_single(r0 * ((slope0 * scale - a0) - c0 * q0), like)
        dx1[j] = encode_single(r1 * ((slope1 * scale - a1) - c1 * q1), like)
        dx2[j] = encode_single(r2 * ((slope2 * scale - a2) - c2 * q2), like)
        dx3[j] = encode_single(r3 * ((slope3 * scale - a3) - c3 * q3), like)
        wide0, wide1 = np.float64(slope0), np.float64(slope1)
        wide2, wide3 = np.float64(slope2), np.float64(slope3)
        term0, term1 = wide0 * np.float64(c0 * r0), wide1 * np.float64(c1 * r1)
        term2, term3 = wide2 * np.float64(c2 * r2), wide3 * np.float64(c3 * r3)
        dgamma[j] += (term0 + term1) + (term2 + term3)
        dbeta[j] += (wide0 + wide1) + (wide2 + wide3)
