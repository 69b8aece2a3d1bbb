"""Fast mode, backward: dx of four rows of float64 numbers at once, and their share of sums.

Four rows share gamma and the sums, as in float32. A row that is not there, or that is refused, is
stood in for by zeros, which add nothing; so dx of a row does not depend on the company it is in.
"""

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.elements.vectors import arrays_are_apart, prefer_wide_vectors
from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Numbers

__all__ = ["LOW", "NEAR", "NUMBERS", "PLAIN", "A", "Q", "R", "write_four"]

NEAR, LOW, R, A, Q, PLAIN = range(6)
"""The numbers of a row that its elements need; PLAIN says that there are such."""

NUMBERS = 8


@compiled(inline="always")
def _numbers(rows: Numbers, k: int) -> Any:
    """Return the numbers of a row."""
    row = rows[k * NUMBERS :]
    return row[NEAR], row[LOW], row[R], row[A], row[Q]


@compiled(fastmath=False)  # or it would be fused as its caller is: what cancels is to be zero
def _sum_of(t0: float, t1: float, t2: float, t3: float) -> Any:
    return (t0 + t1) + (t2 + t3)


@compiled(inline="always")
def _rank(slope: float) -> Any:
    """Return the magnitude of a number less one, as bits: that of zero is the largest."""
    bits = np.float64(slope).view(np.uint64) & np.uint64(0x7FFFFFFFFFFFFFFF)
    return np.uint64(bits - np.uint64(1))


@compiled(fastmath={"contract"})
def write_four(
    x0: Numbers,
    x1: Numbers,
    x2: Numbers,
    x3: Numbers,
    dy0: Numbers,
    dy1: Numbers,
    dy2: Numbers,
    dy3: Numbers,
    gamma: Numbers,
    rows: Numbers,
    dx0: Numbers,
    dx1: Numbers,
    dx2: Numbers,
    dx3: Numbers,
    of_dgamma: Numbers,
    of_dbeta: Numbers,
) -> Any:
    """Write dx of four rows and their share of dgamma and dbeta.

    Returns whether no |dy| but zero is below 2**-200: then no term of dgamma underflows.
    """
    prefer_wide_vectors()
    arrays_are_apart()
    near0, low0, r0, a0, q0 = _numbers(rows, 0)
    near1, low1, r1, a1, q1 = _numbers(rows, 1)
    near2, low2, r2, a2, q2 = _numbers(rows, 2)
    near3, low3, r3, a3, q3 = _numbers(rows, 3)
    smallest = np.uint64(0xFFFFFFFFFFFFFFFF)
    for j in range(gamma.shape[0]):
        scale = gamma[j]
        c0, slope0 = (x0[j] - near0) - low0, dy0[j]
        c1, slope1 = (x1[j] - near1) - low1, dy1[j]
        c2, slope2 = (x2[j] - near2) - low2, dy2[j]
        c3, slope3 = (x3[j] - near3) - low3, dy3[j]
        dx0[j] = r0 * ((slope0 * scale - a0) - c0 * q0)
        dx1[j] = r1 * ((slope1 * scale - a1) - c1 * q1)
        dx2[j] = r2 * ((slope2 * scale - a2) - c2 * q2)
        dx3[j] = r3 * ((slope3 * scale - a3) - c3 * q3)
        of_dgamma[j] = _sum_of(
            slope0 * (c0 * r0), slope1 * (c1 * r1), slope2 * (c2 * r2), slope3 * (c3 * r3)
        )
        of_dbeta[j] = _sum_of(slope0, slope1, slope2, slope3)
        smallest = min(smallest, _rank(slope0), _rank(slope1), _rank(slope2), _rank(slope3))
    return smallest >= np.uint64(0x3370000000000000 - 1)  # the bits of 2**-200
