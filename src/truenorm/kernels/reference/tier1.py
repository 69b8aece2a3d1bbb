"""Structure checks and tier 1: rows in float64 with a rounding test.

Structure checks recognise exact zeros and ties, which no rounding test decides. The bounds are
derived in docs/inside/error-analysis.md; its equations are cited here.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call, Norm
from truenorm.kernels.rounding import Tested, round_to, same_roundings
from truenorm.kernels.rows import Range
from truenorm.kernels.tuning import LOST_IN_Q, SLACK, U

Float64 = NDArray[np.float64]

BLOCK = 2**16
"""Elements of a block: its six temporaries in float64 take 3 MB."""

PAIR_BLOCK = 2**13
"""The same for double-double, which has many temporaries."""


class Scratch:
    """Named float64 arrays, reused for every block: allocation costs as much as filling.

    An array is as large as the largest request under its name.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[np.float64]] = {}

    def like(self, values: NDArray[Any], name: str) -> NDArray[np.float64]:
        """Return an uninitialized array of the shape of the values."""
        return self._first(values.size, name).reshape(values.shape)

    def several_like(self, values: NDArray[Any], count: int, name: str) -> NDArray[np.float64]:
        """Return so many of them, contiguous in memory."""
        return self._first(count * values.size, name).reshape(count, *values.shape)

    def _first(self, count: int, name: str) -> NDArray[np.float64]:
        array = self._arrays.get(name)
        if array is None or array.size < count:
            array = self._arrays[name] = np.empty(count)
        return array[:count]


class Sweep:
    """A sweep over all rows on one thread, in blocks of so many elements."""

    threads = 1

    def __init__(self, call: Call, elements: int) -> None:
        self.call = call
        self.parts: list[Range] = [(0, call.count)]
        self.rows_at_once = max(1, elements // call.size)
        self.scratch = Scratch()


CHUNKS = 8


def depth_of_sum(count: int) -> int:
    """Return the depth of `row_sums` and `column_sums` over so many terms."""
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return max(0, (count - 1).bit_length())
    return CHUNKS + (lanes - 1).bit_length()


def row_sums(terms: Float64) -> Float64:
    """Return the sums along the last of two axes, which stays with length 1."""
    rows, count = terms.shape
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return _halve(terms.T.copy())[:, np.newaxis]
    partial = terms[:, : CHUNKS * lanes].reshape(rows, CHUNKS, lanes).sum(axis=1)
    if count > CHUNKS * lanes:
        partial[:, : count - CHUNKS * lanes] += terms[:, CHUNKS * lanes :]
    # Transposed in memory, so that the additions run over many rows at once.
    return _halve(partial.T.copy())[:, np.newaxis]


def column_sums(terms: Float64) -> Float64:
    """Return the sums along the first of two axes."""
    count, columns = terms.shape
    lanes = count // CHUNKS
    if lanes < CHUNKS:
        return _halve(terms.copy())
    partial = terms[: CHUNKS * lanes].reshape(CHUNKS, lanes, columns).sum(axis=0)
    partial[: count - CHUNKS * lanes] += terms[CHUNKS * lanes :]
    return _halve(partial)


def _halve(partial: Float64) -> Float64:
    """Add the second half to the first, in place, until one row remains; return it."""
    width = len(partial)
    while width > 1:
        half = (width + 1) // 2
        partial[: width - half] += partial[half:width]
        width = half
    total: Float64 = partial[0]
    return total


class Statistics(NamedTuple):
    """Statistics of rows; arrays of shape (rows, 1). v is 0 for constant rows only."""

    mean_high: Float64
    mean_low: Float64
    v: Float64

    @classmethod
    def of_saved(cls, saved: Float64) -> "Statistics":
        """Return the statistics saved by forward, which is v alone in RMSNorm."""
        if saved.shape[1] == 1:
            return cls(np.zeros_like(saved), np.zeros_like(saved), saved)
        return cls(*saved.T[..., np.newaxis])


class Bounds(NamedTuple):
    """Errors of the statistics of each row: (E3), (E4), (E5)."""

    spread: Float64
    """Root mean square of x - mean_high, to which the others are relative."""
    mean: Float64
    centring: Float64
    """Part of (E6) that is the same for all elements of a row."""
    w: Float64
    r: Float64


class ColumnTerms(NamedTuple):
    """Sum of dgamma's terms over a block, with a bound on its error."""

    total: Float64
    bound: Float64


class Gradient(NamedTuple):
    """Results of `backward` for a block."""

    dx: Tested
    dgamma: ColumnTerms
    drift: Float64
    """Change of the row mean, or in RMSNorm of the mean square, relative to its rounding error.

    Above 1, x has changed."""


def statistics(x: Float64, norm: Norm, scratch: Scratch) -> tuple[Statistics, Float64]:
    """Return the statistics of the rows, and scratch: x - mean_high and as many numbers.

    The mean is zero in RMSNorm.
    """
    size = x.shape[1]
    if norm.centred:
        # Any float32 near the mean will do: this sum needs no accuracy.
        high = (x.sum(axis=1, keepdims=True) / size).astype(np.float32).astype(np.float64)
    else:
        high = np.zeros((len(x), 1))
    terms = scratch.several_like(x, 2, "terms")
    d, squares = terms
    np.subtract(x, high, out=d)
    np.multiply(d, d, out=squares)
    low, mean_square = _means(terms)  # (E1)
    if not norm.centred:
        low = high
    v = mean_square - low * low  # (E2)
    return Statistics(high, low, v), terms


def have_moved(now: Statistics, saved: Statistics, norm: Norm) -> NDArray[np.bool_]:
    """Return the rows whose mean, or mean square, is not the saved one, beyond rounding."""
    if norm.centred:
        moved = (now.mean_high - saved.mean_high) + (now.mean_low - saved.mean_low)
        close = np.abs(moved) <= 2.0**-40 * np.sqrt(now.v) + 2.0**-1000
    else:
        close = np.abs(now.v - saved.v) <= 2.0**-40 * now.v
    changed: NDArray[np.bool_] = ~close[:, 0]
    return changed


def _means(terms: Float64) -> Float64:
    """Return the means along the last of three axes."""
    several, rows, size = terms.shape
    means: Float64 = row_sums(terms.reshape(-1, size)).reshape(several, rows, 1) / size
    return means


def bounds_of(moments: Statistics, w: Float64, size: int, norm: Norm) -> Bounds:
    """Bound the error of the mean, and the relative errors of w and r.

    In RMSNorm the mean has no error (R1).
    """
    h = depth_of_sum(size)
    s_square = moments.v + moments.mean_low * moments.mean_low
    s = np.sqrt(s_square)
    mean = (h + 2) * U * s  # (E3)
    variance = (h + 6) * U * s_square + 2 * np.abs(moments.mean_low) * mean
    w_bound = variance / w + U  # (E4)
    centring = mean + U * s
    if not norm.centred:
        mean = centring = np.zeros_like(s)
    return Bounds(s, mean, centring, w_bound, w_bound / 2 + 2 * U)  # (E5)


def rounding_test(z: Float64, bound: Float64, target: FloatFormat) -> Tested:
    """Round z where z - bound and z + bound agree; an exact zero is +0. Overwrites z."""
    z += 0.0  # no -0, which z - 0 would leave
    lower = round_to(z - bound, target)
    z += bound
    return same_roundings(lower, round_to(z, target))


def forward(x: Float64, call: Call, scratch: Scratch) -> tuple[Tested, Statistics]:
    """Compute y of the rows, and their statistics."""
    gamma, beta = call.gamma.finite, call.beta.finite
    moments, terms = statistics(x, call.norm, scratch)
    t, product = terms
    w = moments.v + call.eps
    r = 1 / np.sqrt(w)
    error = bounds_of(moments, w, x.shape[1], call.norm)
    t -= moments.mean_low
    t *= r
    t *= gamma
    z = np.add(t, beta, out=scratch.like(x, "z"))
    bound = np.abs(t, out=t)
    bound *= SLACK * (error.r + 6 * U)
    bound += np.multiply(np.abs(gamma), SLACK * r * error.centring, out=product)
    bound += (SLACK * 2 * U) * np.abs(beta)  # (E7)
    return rounding_test(z, bound, call.x_format), moments


def backward(
    dy: Float64, x: Float64, moments: Statistics, call: Call, scratch: Scratch
) -> Gradient:
    """Compute dx of the rows, and their share of dgamma."""
    centred, eps = call.norm.centred, call.eps
    size = x.shape[1]
    h = depth_of_sum(size)
    w = moments.v + eps
    r = 1 / np.sqrt(w)
    slack_r = SLACK * r
    error = bounds_of(moments, w, size, call.norm)
    s, centring = error.spread, error.centring
    terms = scratch.several_like(x, 4, "terms")
    c, g, z, product = terms
    np.subtract(x, moments.mean_high, out=c)
    c -= moments.mean_low
    np.multiply(dy, call.gamma.finite, out=g)  # exact: 24 bits times 24 bits
    np.multiply(g, g, out=z)
    np.multiply(g, c, out=product)
    c_mean, a, g_square, q = _means(terms)
    g_rms = np.sqrt(g_square)
    q /= w
    if centred:
        drift = np.abs(c_mean) / (error.mean + (h + 4) * U * s + 2.0**-1000)
    else:
        change = row_sums(np.multiply(c, c, out=z)) / size - moments.v
        drift = np.abs(change) / (2 * (h + 6) * U * moments.v + 2.0**-1000)
        a = np.zeros_like(r)

    if centred and size == 2:
        # (D24): the general form cancels completely. Errors are relative, (E11).
        np.multiply(g - g[:, ::-1], r * (eps / w) / 2, out=z)
        bound = np.abs(z, out=product)
        bound *= SLACK * (error.r + error.w + 8 * U)
        bound += 2.0**-1000
    else:
        a_bound, lost = (h + 1) * U * g_rms, 0.0  # (E8)
        if not centred:
            a_bound, lost = np.zeros_like(r), LOST_IN_Q  # (R2)
        q_size = np.abs(q)
        p_bound = (h + 4) * U * g_rms * s + error.mean * np.abs(a)
        q_bound = p_bound / w + q_size * (error.w + U)  # (E9)
        g -= a
        np.multiply(c, q, out=z)
        np.subtract(g, z, out=z)
        z *= r
        bound = np.abs(g, out=g)
        bound *= slack_r * (error.r + 4 * U)
        bound += slack_r * (a_bound + q_size * centring)
        np.abs(c, out=product)
        product *= slack_r * (q_bound + q_size * (error.r + 6 * U)) + lost
        bound += product  # (E10)
    dx = rounding_test(z, bound, call.x_format)

    c *= r
    c *= dy
    total = column_sums(c)
    in_column = depth_of_sum(len(c)) + 2
    share = (slack_r * centring)[:, 0] @ np.abs(dy, out=product)
    share += (SLACK * (error.r + (4 + in_column) * U))[:, 0] @ np.abs(c, out=c)  # (E12)
    return Gradient(dx, ColumnTerms(total, share), drift)


def accept_beta(tested: Tested, without_spread: NDArray[np.bool_], call: Call) -> None:
    """Accept beta as y in rows without spread and where gamma = 0; an exact zero is +0."""
    if not tested.undecided.any():
        return
    rounded = round_to(call.beta.finite + 0.0, call.x_format)
    rows, columns = np.flatnonzero(without_spread), np.flatnonzero(call.gamma.finite == 0)
    tested.values[rows] = rounded
    tested.undecided[rows] = False
    tested.values[:, columns] = rounded[columns]
    tested.undecided[:, columns] = False


def accept_beta_at_mean(tested: Tested, x: Float64, call: Call) -> None:
    """Accept beta as y of undecided elements that equal the mean of their row: c = 0."""
    at_mean = exactly_at_mean(x) if call.norm.centred else x == 0
    at_mean &= tested.undecided
    np.copyto(tested.values, round_to(call.beta.finite + 0.0, call.x_format), where=at_mean)
    tested.undecided[at_mean] = False


def accept_zero_dx(tested: Tested, dy: Float64, call: Call) -> None:
    """Accept dx = 0 in rows with constant g (D21), as in the gradient of y.sum().

    In RMSNorm, g must be zero.
    """
    gamma = call.gamma.finite
    first = dy[:, 0] * gamma[0]
    rows = np.flatnonzero(first == dy[:, -1] * gamma[-1])
    if not len(rows):
        return
    g = dy[rows] * gamma
    rows = rows[(g == (g[:, :1] if call.norm.centred else 0.0)).all(axis=1)]
    tested.values[rows] = 0
    tested.undecided[rows] = False


def accept_zero_at_zero(tested: Tested, dy: Float64, x: Float64, call: Call) -> None:
    """Accept dx = 0 of RMSNorm where x and g are zero (D29)."""
    if not call.norm.centred and tested.undecided.any():
        zero = (x == 0) & ((dy == 0) | (call.gamma.finite == 0))
        tested.values[zero] = 0
        tested.undecided[zero] = False


def exactly_at_mean(x: Float64) -> NDArray[np.bool_]:
    """Return the elements that are proven equal to the mean of their row: D*x = sum(x).

    If all x of a row are multiples of some 2**k, and sum|x| < 2**(k + 53), then every partial sum
    is a float64, so the sum is exact in any order. Elements of float64 rows are never proven: the
    products with D must be exact as well.
    """
    limit = np.frexp(2 * row_sums(np.abs(x)))[1]
    in_units = np.ldexp(x, 53 - limit)
    exact = (np.rint(in_units) == in_units).all(axis=1, keepdims=True)
    exact &= (x.astype(np.float32) == x).all(axis=1, keepdims=True)
    at_mean: NDArray[np.bool_] = x * x.shape[1] == row_sums(x)
    at_mean &= exact
    return at_mean
