"""Fast mode, backward: dx of four rows at once, in float32, and their sums over rows.

Four rows share gamma and the sums: those are loaded and stored once. A row that is not there, or
not for float32, is stood in for by zeros, which add nothing; so dx of a row does not depend on
the company it is in.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.encoding import decode_single, encode_single
from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Coded, Numbers, Singles

__all__ = ["HIGH", "LOW", "SINGLE", "SINGLES", "A", "Q", "R", "add_to_sums", "write_four"]

HIGH, LOW, R, A, Q, SINGLE = range(6)
"""The float32 numbers of a row that its elements need; SINGLE says that there are such."""

SINGLES = 8


@compiled(inline="always")
def _singles(rows: Numbers, k: int) -> Any:
    """Return the numbers of a row in float32."""
    row = rows[k * SINGLES :]
    high, low, r = np.float32(row[HIGH]), np.float32(row[LOW]), np.float32(row[R])
    return high, low, r, np.float32(row[A]), np.float32(row[Q])


@compiled(fastmath={"contract"})
def write_four(
    x0: Coded,
    x1: Coded,
    x2: Coded,
    x3: Coded,
    dy0: Coded,
    dy1: Coded,
    dy2: Coded,
    dy3: Coded,
    gamma: Coded,
    rows: Numbers,
    dx0: Coded,
    dx1: Coded,
    dx2: Coded,
    dx3: Coded,
    terms: Singles,
) -> Any:
    """Write dx of four rows and their share of dgamma; return whether that is finite.

    If not, dgamma itself may be finite: the share is for float64 to say.
    """
    prefer_wide_vectors()
    arrays_are_apart()
    high0, low0, r0, a0, q0 = _singles(rows, 0)
    high1, low1, r1, a1, q1 = _singles(rows, 1)
    high2, low2, r2, a2, q2 = _singles(rows, 2)
    high3, low3, r3, a3, q3 = _singles(rows, 3)
    like = dx0[0]
    largest = np.int32(0)
    for j in range(gamma.shape[0]):
        scale = decode_single(gamma[j])
        c0, slope0 = (decode_single(x0[j]) - high0) - low0, decode_single(dy0[j])
        c1, slope1 = (decode_single(x1[j]) - high1) - low1, decode_single(dy1[j])
        c2, slope2 = (decode_single(x2[j]) - high2) - low2, decode_single(dy2[j])
        c3, slope3 = (decode_single(x3[j]) - high3) - low3, decode_single(dy3[j])
        dx0[j] = encode_single(r0 * ((slope0 * scale - a0) - c0 * q0), like)
        dx1[j] = encode_single(r1 * ((slope1 * scale - a1) - c1 * q1), like)
        dx2[j] = encode_single(r2 * ((slope2 * scale - a2) - c2 * q2), like)
        dx3[j] = encode_single(r3 * ((slope3 * scale - a3) - c3 * q3), like)
        two = slope0 * (c0 * r0) + slope1 * (c1 * r1)
        term = two + (slope2 * (c2 * r2) + slope3 * (c3 * r3))
        terms[j] = term
        size = np.int32(np.float32(term).view(np.int32) & np.int32(0x7FFFFFFF))
        largest = max(largest, size)
    return largest < np.int32(0x7F800000)


@compiled
def add_to_sums(
    dy0: Coded,
    dy1: Coded,
    dy2: Coded,
    dy3: Coded,
    terms: Singles,
    dgamma: Numbers,
    dbeta: Numbers,
) -> None:
    """Add the shares of four rows to the sums over rows."""
    prefer_wide_vectors()
    arrays_are_apart()
    for j in range(dgamma.shape[0]):
        dgamma[j] += np.float64(terms[j])
        two = np.float64(decode_single(dy0[j])) + np.float64(decode_single(dy1[j]))
        dbeta[j] += two + (np.float64(decode_single(dy2[j])) + np.float64(decode_single(dy3[j])))
