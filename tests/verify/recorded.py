"""What each subject of the tests returned, at the quick level: asked once, graded often."""

from functools import cache

import numpy as np

from truenorm import textbook
from truenorm.verify.grading.grades import NOWHERE, grade
from truenorm.verify.grading.guards import GUARDS
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.judge import collect, scope
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import Record
from truenorm.verify.runs.in_process import InProcess
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array
from verify.planted.registry import FEW_ROWS, MORE_RIGHT, PLANTED, RIGHT


def in_float64(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    wide = [each.astype(np.float64) for each in (x, gamma, beta)]
    return textbook.forward(wide[0], wide[1], wide[2], eps)[0].astype(x.dtype)


RIGHT_FORWARD = Subject(in_float64, name="in float64")
"""Right for float32, and without a backward pass."""
ASKED_OF_RMS_NORM = "RMSNorm: two passes in float32"
SLOW = {
    "the base for float64",
    *(name for name in RIGHT if name.startswith("RMSNorm") and name != ASKED_OF_RMS_NORM),
    *(name for name, subject in (RIGHT | MORE_RIGHT).items() if subject.recipe),
}
"""Right, and not asked for a call of 2^24 elements: it takes 15 s, or one of a norm will do."""

MANY_ROWS = 2**16


def asked(name: str, level: str) -> list[Case]:
    """Return the cases that are put to a subject.

    A planted bug gets the large one only if that is what it is about: a call takes seconds. Those
    of relatives are to be caught without the three cases of more than 2^16 rows as well.
    """
    other = name in PLANTED and PLANTED[name].verdict != "large calls"
    suite = scope(subject_named(name), level)
    suite = [case for case in suite if case.family != "large" or not (other or name in SLOW)]
    return [case for case in suite if case.shape[0] < MANY_ROWS or name not in FEW_ROWS]


def subject_named(name: str) -> Subject:
    return PLANTED[name].subject if name in PLANTED else (RIGHT | MORE_RIGHT)[name]


@cache
def records_of(name: str, level: str = "quick") -> tuple[Record, ...]:
    subject = subject_named(name)
    return tuple(collect(InProcess(subject), asked(name, level)))


def graded(
    name: str,
    level: str = "quick",
    without: str = "",
    require: str = "stable",
    origin: Origin = NOWHERE,
) -> Report:
    """Grade what a subject returned, with all guards but one."""
    subject = subject_named(name)
    return grade(
        name,
        asked(name, level),
        records_of(name, level),
        outputs=subject.outputs,
        guards=[guard for guard in GUARDS if guard != without],
        require=require,
        origin=origin,
        recipe=subject.recipe,
    )
