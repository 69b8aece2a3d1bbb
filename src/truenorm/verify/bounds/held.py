"""A result, held against its answers part by part: how many elements are off, and which most."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.text import counted
from truenorm.verify.answers.expected import Expected
from truenorm.verify.grading.measuring import Apart, all_misplaced, apart
from truenorm.verify.grading.own.enclosed import Enclosed
from truenorm.verify.types import Array, Float64s

__all__ = ["GRADES", "Off", "held_against", "tolerance_of"]

GRADES = ("conditional", "stable", "faithful", "correct")
"""Those that say of one input how far a result may be off, from the loosest."""
POWERS = {"conditional": 1, "stable": 0}


@dataclass(frozen=True)
class Off:
    """Elements that are off, and the worst of them.

    `times` says how many times the tolerance its error is.
    """

    count: int = 0
    of: int = 0
    at: tuple[int, ...] = ()
    got: Any = 0.0
    exact: Any = 0.0
    allowed: float = 0.0
    error: float = 0.0
    ulp: float = 0.0
    times: float = -1.0

    def said(self, name: str, place: Sequence[int], grade: str, cause: str) -> str:
        """Return it in words, the worst element with its place."""
        are = "is" if self.count == 1 else "are"
        lines = [
            f"{name} is not {grade}: {self.count} of {counted(self.of, 'element')} {are} off",
            f"  worst: {name}{list(place)} is {self.got}, the exact answer {self.exact}: off by "
            f"{self.error:.3g}, {self.ulp:.3g} ulp, where {self.allowed:.3g} is allowed",
        ]
        return "\n".join([*lines, f"  cause: {cause}"] if cause else lines)


def tolerance_of(answer: Expected, output: str, grade: str) -> Float64s:
    """Return how far each element may be from the exact number, before that is rounded.

    Nothing beyond its own rounding, for *correct*; less than an ulp, for *faithful*. Where that
    number is not finite, nothing is allowed.
    """
    if grade in POWERS:
        return answer.allowed(output, POWERS[grade])
    finite, ulps = np.isfinite(answer.wide[output]), answer.ulps[output]
    room = ulps if grade == "faithful" else np.abs(answer.rests[output]) * ulps
    return np.where(finite, room, 0.0)


def held_against(
    parts: Iterable[tuple[slice, Expected]], output: str, got: Array, grade: str
) -> Off:
    """Hold a result against all parts of its answers: rows of it, or all of its columns."""
    found = Off()
    for some, answer in parts:
        one = _in_part(answer, output, got[some], grade)
        start = some.start or 0
        moved = (start + one.at[0], *one.at[1:]) if one.at else ()
        shown = replace(one, at=moved) if one.times > found.times else found
        found = replace(shown, count=found.count + one.count, of=found.of + one.of)
    return found


def _in_part(answer: Expected, output: str, got: Array, grade: str) -> Off:
    known = answer.bounds[output] if isinstance(answer, Enclosed) else None
    away = apart(answer, output, got, known=known)
    misplaced = all_misplaced(answer, output, got, known)
    tolerance = tolerance_of(answer, output, grade)
    wrong = _beyond(away, tolerance, grade) | misplaced
    count, values = int(wrong.sum()), answer.values[output]
    if not count or values is None:
        return Off(of=wrong.size)
    with np.errstate(all="ignore"):
        times = away.error / np.maximum(tolerance, answer.ulps[output] / 2)
    times = np.where(wrong, np.where(misplaced, np.inf, times), -1.0)
    at = tuple(map(int, np.unravel_index(int(np.argmax(times)), times.shape)))
    return Off(
        count,
        wrong.size,
        at,
        got[at],
        values[at],
        float(tolerance[at]),
        float(away.error[at]),
        float(away.in_ulp[at]),
        float(times[at]),
    )


def _beyond(away: Apart, tolerance: Float64s, grade: str) -> NDArray[np.bool_]:
    """Tell of each element whether it is further off than its grade says."""
    if grade == "correct":
        return ~away.right
    if grade == "faithful":
        return np.asarray(away.in_ulp >= 1)
    return np.asarray(away.error > tolerance)
