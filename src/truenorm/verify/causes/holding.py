"""One hypothesis, held against what came back in one case."""

import math
from typing import NamedTuple

import numpy as np

from truenorm.verify.answers.expected import SINGLE, expected
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

__all__ = ["Came", "Held", "apart", "held"]

NEARER = 4.0
"""What came back must be so many times nearer to a hypothesis than that is to the answer."""


class Came(NamedTuple):
    """A result that came back, and whether nothing is wrong with it."""

    case: Case
    output: str
    result: Array
    right: bool


class Held(NamedTuple):
    """How a hypothesis does in one case.

    Attributes
    ----------
    numbers, room : ndarray
        What it gives, and how far from that a result may be.
    known : bool
        Whether it gives anything: not if it is NaN everywhere.
    differs : bool
        Whether it is another answer than the exact one, beyond what is allowed.
    fits : bool
        Whether it is what came back.
    tells : int
        The elements in which it differs, if it fits and differs by far more than it is off.
    distance : float
        The root mean square of how far off that is, relative to the room.
    ulp : float
        The largest that is off, in ulp.
    contrast : float
        The root mean square of how far it is from the exact answer, relative to the room.
    """

    numbers: Float64s
    room: Float64s
    known: bool
    differs: bool
    fits: bool
    tells: int
    distance: float
    ulp: float
    contrast: float


def held(came: Came, hypothesis: Hypothesis) -> Held:
    """Hold a hypothesis against what came back."""
    exact, output = expected(came.case), came.output
    with np.errstate(all="ignore"):
        right = exact.wide[output]
        numbers = np.broadcast_to(hypothesis(came.case), right.shape)
        beyond = np.abs(numbers) >= np.ldexp(1.0, FORMATS[exact.types[output]].limit)
        numbers = np.where(beyond, np.copysign(np.inf, numbers), numbers)
        sizes = _sizes(numbers)
        room = _room(came, numbers, sizes)
        off = apart(numbers, right)
        allowed = exact.allowed(output)
        away = apart(came.result.astype(np.float64), numbers)
        ulps = ulps_of(np.maximum(np.abs(_finite(numbers)), sizes), exact.types[output])
        different = int((off > allowed).sum())
        distance = _root_mean_square(away / room)
        fits = bool((away <= room).all())
        contrast = _root_mean_square(off / room)
        tells = different if fits and NEARER * distance <= contrast else 0
        ulp = float((away / ulps).max(initial=0.0))
        known = not np.isnan(numbers).all()
        return Held(numbers, room, known, different > 0, fits, tells, distance, ulp, contrast)


def _root_mean_square(numbers: Float64s) -> float:
    return float(np.sqrt(np.mean(numbers**2))) if numbers.size else 0.0


def _finite(numbers: Float64s) -> Float64s:
    return np.where(np.isfinite(numbers), numbers, 0.0)


def apart(one: Float64s, other: Float64s) -> Float64s:
    """Return how far apart numbers are: not at all, if both are the same infinity or NaN."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    difference = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(difference), np.inf, difference))


def _sizes(numbers: Float64s) -> Float64s:
    """Return the root mean square of each row, or of one number a column."""
    squares = _finite(numbers) ** 2
    return np.asarray(np.sqrt(squares.mean(axis=-1, keepdims=True)))


def _room(came: Came, numbers: Float64s, sizes: Float64s) -> Float64s:
    """Return how far from a hypothesis a result may be: an ulp, and a few roundings.

    Those are of the natural scale, which is larger or smaller by as much as the row of the
    hypothesis is than that of the exact answer.
    """
    exact, output = expected(came.case), came.output
    scale = exact.scale(output)
    ratio = sizes / _sizes(exact.wide[output])
    scaled = np.where(np.isfinite(ratio), ratio * scale, sizes) + np.abs(_finite(numbers))
    ulps = ulps_of(_finite(numbers), exact.types[output])
    return np.asarray(ulps + exact.unit(output) * _roundings(came) * scaled)


def _roundings(came: Came) -> float:
    """Return K: what a right result may be off; of 16 bits less, or one bug passes for another.

    There two more roundings on the way are allowed for; of each term, where many are added up.
    """
    exact, case = expected(came.case), came.case
    all_of_them, unit = exact.factor(came.output), exact.unit(came.output)
    if unit <= SINGLE:
        return all_of_them
    terms = 1 if case.operation.is_rows(came.output) else max(case.shape[0], 1)
    return 2 / math.sqrt(terms) + all_of_them * SINGLE / unit
