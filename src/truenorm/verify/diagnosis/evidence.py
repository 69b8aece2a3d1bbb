"""In which cases something is wrong, if it is not in all: by D, or by the number of rows."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.oracle import FLOAT32_ROUNDOFF, Expected, compute_exact, expected
from truenorm.verify.running.records import PLAIN, Record
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

LISTED = 3
"""So many sizes are listed one by one."""


def where(wrong: Collection[Case], right: Collection[Case]) -> str:
    """Return words for what sets some cases apart from others, or nothing if no size does."""
    if not right:
        return ""
    for axis, name in ((1, "D"), (0, "the number of rows")):
        these = {case.shape[axis] for case in wrong}
        others = {case.shape[axis] for case in right}
        if not these & others:
            return f"where {name} is {_sizes_of_cases(these, others)}"
    return ""


def _sizes_of_cases(these: Collection[int], others: Collection[int]) -> str:
    """Return sizes in words: a range, a multiple, or a list."""
    least, largest = min(these), max(these)
    if len(these) <= LISTED:
        return " or ".join(map(str, sorted(these)))
    if not any(least <= size <= largest for size in others):
        return (
            f"from {least} to {largest}"
            if max(others, default=0) > largest
            else f"{least} or more"
        )
    block = min(size & -size for size in these)
    if block > 1 and not any(size % block == 0 for size in others):
        return f"a multiple of {block}"
    return "one of " + ", ".join(map(str, sorted(these)))


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
        sizes = _sizes_of_results(numbers)
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


def _sizes_of_results(numbers: Float64s) -> Float64s:
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
    ratio = sizes / _sizes_of_results(exact.wide[output])
    scaled = np.where(np.isfinite(ratio), ratio * scale, sizes) + np.abs(_finite(numbers))
    ulps = ulps_of(_finite(numbers), exact.types[output])
    return np.asarray(ulps + exact.unit(output) * _roundings(came) * scaled)


def _roundings(came: Came) -> float:
    """Return K: what a right result may be off; of 16 bits less, or one bug passes for another.

    There two more roundings on the way are allowed for; of each term, where many are added up.
    """
    exact, case = expected(came.case), came.case
    all_of_them, unit = exact.factor(came.output), exact.unit(came.output)
    if unit <= FLOAT32_ROUNDOFF:
        return all_of_them
    terms = 1 if case.operation.is_rows(came.output) else max(case.shape[0], 1)
    return 2 / math.sqrt(terms) + all_of_them * FLOAT32_ROUNDOFF / unit


class Seen(NamedTuple):
    """A case, all that came back for it, and whether it shows the symptom."""

    case: Case
    records: Sequence[Record]
    wrong: bool

    def of_kind(self, kind: str) -> list[Record]:
        """Return what came of calls of a kind, as far as they returned."""
        return [each for each in self.records if each.call.kind == kind and not each.failure]

    def result(self, output: str, kind: str = PLAIN) -> Array | None:
        """Return a result of the first call of a kind, as rows or as one.

        Of another size it is a finding by itself, and explains no other.
        """
        shape = self.case.shape if self.case.operation.is_rows(output) else self.case.shape[1:]
        for record in self.of_kind(kind):
            found = record.results.get(output)
            if found is None or found.size != math.prod(shape):
                return None
            return found.reshape(shape)
        return None


Explains = Callable[[str, Sequence[Seen]], str]
"""Returns the cause of a symptom of one output, from all cases of a type; or nothing."""


def right_in(exact: Expected, output: str, result: Array) -> NDArray[np.bool_]:
    """Tell of each element whether it is as near to the exact answer as is asked for."""
    with np.errstate(all="ignore"):
        away = apart(result.astype(np.float64), exact.wide[output])
        return np.asarray(away <= exact.allowed(output))


def is_answer(case: Case, output: str, result: Array) -> bool:
    """Tell whether a result is the right one of a case that is made up to see just that."""
    exact = Expected(case, compute_exact(case))
    return result.shape == exact.wide[output].shape and bool(right_in(exact, output, result).all())
