"""Ways of taking a sum, and the way that explains the errors of results.

A sum that a kernel takes in floating point has an error that follows from the order of its
additions and from the type of its partial sums. Rows of equal magnitudes show it best: within a
binade, each addition to a partial sum has the same rounding error, and the errors add up.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from truenorm.verify.types import Array, Float64s, dtype_of

LANES = tuple(2**k for k in range(1, 11))
BLOCKS = tuple(2**k for k in range(4, 13))
NARROW = ("float16", "bfloat16")
MOST_STEPS = 2**13
"""Additions of unrounded terms in sequence, beyond which they would take too long."""
LEAST_DRIFT = 10.0
"""The largest error of a sum that counts as accurate, in units of roundoff."""
EXPLAINED = 0.9
"""The least share of the errors that a way must explain."""
EQUALLY_GOOD, ROUNDING = 2.0, 0.5
"""Ways whose remaining errors are within this factor of the smallest are equally good. Remaining
errors below half a unit of roundoff are roundings of other steps."""


class Way(NamedTuple):
    """An order of additions, and the type of the partial sums.

    The terms are divided into parts. The terms of a part are added one by one, the sums of the
    parts pairwise. With `lanes`, term k belongs to part k % lanes; with `block`, parts are
    contiguous. Lanes that are combined one by one differ by few roundings, and blocks whose sums
    are added one by one have the errors of as many lanes. With `once`, the terms are rounded, and
    then their exact sum.

    Examples
    --------
    >>> ones = np.ones((1, 4096), np.float32)
    >>> Way("float16").sum(ones), Way("float16", lanes=4).sum(ones)
    (array([2048.]), array([4096.]))
    >>> Way("float16", once=True).sum(1.0001 * ones)
    array([4096.])
    >>> Way("float16", lanes=4).words
    'in float16, in 4 lanes'
    """

    kind: str = "float32"
    lanes: int = 1
    block: int = 0
    fused: bool = False  # a term is not rounded before it is added
    once: bool = False

    @property
    def id(self) -> str:
        """The way in the id of a cause."""
        order = f"block={self.block}" if self.block else f"lanes={self.lanes}"
        parts = (self.kind, "once" if self.once else order, *["fused"][: self.fused])
        return ", ".join(parts)

    @property
    def words(self) -> str:
        """The way in words."""
        if self.once:
            return f"exactly and rounded to {self.kind}"
        if self.block:
            order = "pairwise" if self.block == 1 else f"in blocks of {self.block}"
        else:
            order = "one by one" if self.lanes == 1 else f"in {self.lanes} lanes"
        return f"in {self.kind}, {order}"

    def sum(self, terms: Float64s | Array) -> Float64s:
        """Sum the last axis."""
        kind = dtype_of(self.kind)
        with np.errstate(all="ignore"):
            narrow = np.asarray(terms, np.float64 if self.fused else kind)
            if self.once:
                exact = narrow.astype(np.float64).sum(axis=-1)
                return np.asarray(exact.astype(kind).astype(np.float64))
            # More lanes or longer blocks than a short row needs would only add zeros.
            count = narrow.shape[-1]
            if self.block:
                parts = _padded(narrow, min(self.block, count)).swapaxes(-1, -2)
            else:
                parts = _padded(narrow, min(self.lanes, _power_of_two(count)))
            if self.fused and parts.shape[-2] > MOST_STEPS:
                return np.full(narrow.shape[:-1], np.nan)
            return np.asarray(_by_halves(_in_sequence(parts, kind)).astype(np.float64))


def _power_of_two(count: int) -> int:
    """Return the least power of two that is no less than a count."""
    return 1 << (count - 1).bit_length()


def _padded(terms: Array, size: int) -> Array:
    """Return the last axis as rows of `size`, the last row filled with zeros."""
    missing = -terms.shape[-1] % size
    if missing:
        zeros = np.zeros((*terms.shape[:-1], missing), terms.dtype)
        terms = np.concatenate([terms, zeros], axis=-1)
    return terms.reshape(*terms.shape[:-1], -1, size)


def _in_sequence(terms: Array, kind: "np.dtype[np.generic]") -> Array:
    """Add along the last axis but one, with each partial sum rounded to a type."""
    if terms.dtype == kind:
        sums: Array = np.add.accumulate(terms, axis=-2, dtype=kind)
        return sums[..., -1, :]
    total: Array = np.zeros((*terms.shape[:-2], terms.shape[-1]), kind)
    for step in range(terms.shape[-2]):
        total = (total.astype(np.float64) + terms[..., step, :]).astype(kind)
    return total


def _by_halves(terms: Array) -> Array:
    """Add neighbours along the last axis until one number is left."""
    terms = _padded(terms, _power_of_two(terms.shape[-1]))[..., 0, :]
    while terms.shape[-1] > 1:
        terms = terms[..., 0::2] + terms[..., 1::2]
    return terms[..., 0]


def ways(kind: str) -> Iterator[Way]:
    """Yield the ways that are tried with partial sums of a type, the simplest first."""
    if kind in NARROW:  # elsewhere, one rounding leaves no error to explain
        yield Way(kind, once=True)
    yield Way(kind)
    for lanes in LANES:
        yield Way(kind, lanes=lanes)
    for block in BLOCKS:
        yield Way(kind, block=block)
    yield Way(kind, block=1)
    if kind in NARROW:  # elsewhere, a rounded term makes no difference
        yield Way(kind, fused=True)


class Drift(NamedTuple):
    """Errors of results, and the errors that a sum would leave there, by its way.

    Errors are in units of roundoff, relative to the result or to its natural scale.
    """

    observed: Float64s
    predicted: Callable[[Way], Float64s]


class Fit(NamedTuple):
    """A way, the share of the errors that it explains, and predicted divided by observed errors.

    The ratio is that of the largest error. `left` is the root mean square of what is left.
    """

    way: Way
    share: float
    ratio: float
    left: float


def fit(drifts: Sequence[Drift], tried: Iterable[Way]) -> list[Fit]:
    """Return the ways that explain errors best, the simplest first; none if no way does.

    All errors below `LEAST_DRIFT` are those of an accurate sum, which can be taken in any way.

    Examples
    --------
    >>> rows = np.full((1, 20000), 0.7, np.float32)
    >>> def drift(way):
    ...     return (way.sum(rows) / (20000 * rows[:, 0].astype(np.float64)) - 1) * 2**24
    >>> [each.way.words for each in fit([Drift(drift(Way(lanes=8)), drift)], [*ways('float32')])]
    ['in float32, in 8 lanes']
    """
    observed = np.concatenate([each.observed.ravel() for each in drifts])
    if not (np.abs(observed[np.isfinite(observed)]) >= LEAST_DRIFT).any():
        return []
    fits = [_fit_of(way, drifts, observed) for way in tried]
    fits = [each for each in fits if each.share >= EXPLAINED]
    least = min((each.left for each in fits), default=0.0)
    limit = EQUALLY_GOOD * max(least, ROUNDING)
    return [each for each in fits if each.left <= limit]


def _fit_of(way: Way, drifts: Sequence[Drift], observed: Float64s) -> Fit:
    with np.errstate(all="ignore"):
        predicted = np.concatenate([each.predicted(way).ravel() for each in drifts])
        finite = np.isfinite(observed)
        if (finite != np.isfinite(predicted)).any():  # only one of them overflows
            return Fit(way, 0.0, 0.0, np.inf)
        observed, predicted = observed[finite], predicted[finite]
        left = float(np.sqrt(np.mean((observed - predicted) ** 2)))
        total = float(np.sqrt(np.mean(observed**2)))
        largest = np.argmax(np.abs(observed))
        ratio = float(predicted[largest] / observed[largest])
        return Fit(way, 1 - left / total, ratio, left)
