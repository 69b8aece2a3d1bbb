"""Records of each test subject: run once, graded often."""

from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from shared.verify.planted.registry import FEW_ROWS, MORE_RIGHT, OF_MANY_ROWS, PLANTED
from shared.verify.planted.right import RIGHT
from truenorm import textbook
from truenorm.verify.collecting import collect
from truenorm.verify.grading.grades import NOWHERE, grade
from truenorm.verify.grading.report import Report
from truenorm.verify.judge import scope
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record
from truenorm.verify.running.runners import InProcess
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.types import Array


def in_float64(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    wide = [each.astype(np.float64) for each in (x, gamma, beta)]
    return textbook.forward(wide[0], wide[1], wide[2], eps)[0].astype(x.dtype)


RIGHT_FORWARD = Subject(in_float64, name="in float64")
"""Right for float32, and without a backward pass."""
GETS_LARGE_CALLS = {"truenorm, fast", "RMSNorm: two passes in float32"}
"""Right, and asked for calls of 2^24 elements at the quick level: of each norm one will do there.

Such calls take 5 to 30 s. At the full level, which is for the slow session, all get them but the
recipes, which are one kernel.
"""

MANY_ROWS = 2**16
OF_VERDICTS = {
    "large": {"large calls"},
    "served": {"batch-invariant"},
    "row-counts": {"batch-invariant"},
    "repeated": {"repeatable", "sums repeatable"},
}
"""Families whose calls take seconds, and the verdicts they are for."""


def cases_for(name: str, level: str, dtype: str = "") -> list[Case]:
    """Return the cases of a subject, or those of one type.

    A planted bug gets families of `OF_VERDICTS` only if that is what it is about. And at the quick
    level, those of variants at any, the three of more than 2^16 rows likewise; nor
    are there such rows for a recipe that is right.
    """
    left = set()
    if name in PLANTED:
        verdict = PLANTED[name].verdict
        left = {family for family, of in OF_VERDICTS.items() if verdict not in of}
    elif name not in GETS_LARGE_CALLS and (level != "full" or subject_named(name).recipe):
        left = {"large"}
    suite = scope(subject_named(name), level)
    of_type = [case for case in suite if dtype in ("", case.dtype)]
    spared = name in PLANTED.keys() - OF_MANY_ROWS or bool(subject_named(name).recipe)
    by_few = name in FEW_ROWS or (level == "quick" and spared)
    few = [case for case in of_type if case.shape[0] < MANY_ROWS or not by_few]
    return [case for case in few if case.family not in left]


def leave_out_long_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `verify` leave out the cases whose calls take seconds, for tests of something else."""

    def shorter(*arguments: Any) -> list[Case]:
        suite = scope(*arguments)
        few = (case for case in suite if case.shape[0] < MANY_ROWS)
        return [case for case in few if case.family not in OF_VERDICTS]

    monkeypatch.setattr("truenorm.verify.judge.scope", shorter)


def subject_named(name: str) -> Subject:
    return PLANTED[name].subject if name in PLANTED else (RIGHT | MORE_RIGHT)[name]


def records_of(name: str, level: str = "quick", dtype: str = "") -> tuple[Record, ...]:
    """Return the records of a subject; those of the full level are gigabytes, and are not kept."""
    return _recent(name, dtype) if level == "quick" else _collected(name, level, dtype)


@lru_cache(maxsize=16)
def _recent(name: str, dtype: str) -> tuple[Record, ...]:
    return _collected(name, "quick", dtype)


def _collected(name: str, level: str, dtype: str) -> tuple[Record, ...]:
    subject = subject_named(name)
    # Each time from the beginning: some planted kernels have a state.
    forward, backward = deepcopy((subject.forward, subject.backward))
    subject = replace(subject, forward=forward, backward=backward)
    return tuple(collect(InProcess(subject), cases_for(name, level, dtype)))


def graded(
    name: str,
    level: str = "quick",
    require: str = "stable",
    spec: SubjectSpec = NOWHERE,
    dtype: str = "",
    *,
    causes: bool = True,
) -> Report:
    """Grade the records of a subject, for all its types or one."""
    subject = subject_named(name)
    return grade(
        name,
        cases_for(name, level, dtype),
        records_of(name, level, dtype),
        outputs=subject.outputs,
        require=require,
        spec=spec,
        recipe=subject.recipe,
        causes=causes,
    )
