"""Judge the subject of a target, in a process of its own, or compare it with another."""

import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, Unpack

from truenorm.tools.progress import Progress
from truenorm.verify.campaigns.campaign import Drawing, ran
from truenorm.verify.campaigns.summary import Campaign
from truenorm.verify.collecting.one_by_one import collect
from truenorm.verify.collecting.places import Place
from truenorm.verify.collecting.spread import spread
from truenorm.verify.domain import Domain
from truenorm.verify.equal.comparing import Side, common, compared
from truenorm.verify.equal.report import Equality
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.judge import judged
from truenorm.verify.operation import Case
from truenorm.verify.operations import operation_of
from truenorm.verify.own.cases import case_of_shape, shape_of
from truenorm.verify.own.data import load_data
from truenorm.verify.runs.loading import dotted_path, split_target
from truenorm.verify.runs.subject_process import START_SECONDS, CannotRunError, SubjectProcess
from truenorm.verify.subject import Subject
from truenorm.verify.tensors.dotted import PREFIX
from truenorm.verify.tensors.torch_subject import DTYPES

__all__ = ["Said", "campaign_target", "compare_targets", "verify_target"]


class Said(TypedDict, total=False):
    """What may be said of a subject in place of what it says itself.

    `operation` in words, `recipe`, the `dtypes` to judge, and its domain: the `largest` of its
    numbers, and `kappa`. Beside that, what else it is judged on: `shapes`, and files with `data`.
    """

    operation: str
    recipe: str
    dtypes: Collection[str] | None
    largest: float | None
    kappa: float | None
    shapes: Sequence[str]
    data: Sequence[Path]


def verify_target(
    target: str,
    *,
    level: str = "quick",
    require: str = "stable",
    progress: Progress | None = None,
    baseline: Path | None = None,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
    executor: Executor | None = None,
    **said: Unpack[Said],
) -> Report:
    """Judge the subject of ``file.py:name``, which is executed in a process of its own.

    Or of ``torch:package.module.function``: of that, float32 and bfloat16 unless `dtypes` says.
    What is `said` of it counts, whatever it says itself. Findings of a `baseline` pass. With
    `python`, it runs by the interpreter of another environment, which can import truenorm; the
    workers of an `executor` have their own.
    """
    with SubjectProcess(
        target,
        operation=said.get("operation", ""),
        python=python,
        environment=environment,
        start_seconds=start_seconds,
    ) as process:
        claimed, origin = _claimed(target, process, said), _origin(target, process, said)
        collecting = collect
        if executor is not None:
            collecting = partial(spread, executor, Place.of(origin, start_seconds))
        return judged(
            claimed,
            process,
            origin,
            level=level,
            require=require,
            progress=progress,
            own=_own(said, claimed),
            baseline=baseline,
            collecting=collecting,
        )


def campaign_target(
    target: str,
    drawing: Drawing,
    *,
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    executor: Executor | None = None,
    **said: Unpack[Said],
) -> Campaign:
    """Judge the subject of a target on cases that are drawn, in a process of its own."""
    operation = said.get("operation", "")
    with SubjectProcess(target, operation=operation, start_seconds=start_seconds) as process:
        claimed, origin = _claimed(target, process, said), _origin(target, process, said)
        crew = None if executor is None else (executor, Place.of(origin, start_seconds))
        return ran(claimed, process, origin, drawing, progress=progress, crew=crew)


def compare_targets(
    first: str,
    second: str,
    *,
    level: str = "quick",
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    **said: Unpack[Said],
) -> Equality:
    """Compare the bits of two subjects, each of which is executed in a process of its own."""
    operation = said.get("operation", "")
    start = partial(SubjectProcess, operation=operation, start_seconds=start_seconds)
    with start(first) as one, start(second) as other:
        sides = (
            Side(_claimed(first, one, said), one),
            Side(_claimed(second, other, said), other),
        )
        suite = common(sides[0].subject, sides[1].subject, level)
        types = {case.dtype for case in suite}
        own = [case for case in _own(said, sides[0].subject) if case.dtype in types]
        return compared(*sides, [*suite, *own], level=level, progress=progress)


def _claimed(target: str, process: SubjectProcess, said: Said) -> Subject:
    """Return what the subject of a process says of itself, but for what is said of it."""
    dtypes = said.get("dtypes") or (DTYPES if dotted_path(target) else None)
    told = process.description
    try:
        known = operation_of(told["operation"])
    except ValueError as unknown:
        raise CannotRunError(
            f"the operation {told['operation']!r} is known in its file alone"
        ) from unknown
    claimed = Subject(
        forward=_elsewhere,
        backward=_elsewhere if told["backward"] else None,
        name=told["name"],
        dtypes=told["dtypes"],
        also=told["also"],
        operation=known,
        recipe=said.get("recipe") or told["recipe"],
        domain=_domain(said, *map(float.fromhex, told["domain"])),
    )
    if not dtypes:
        return claimed
    if not set(dtypes) <= set(claimed.dtypes):
        raise CannotRunError(
            f"{claimed.name} claims {', '.join(claimed.dtypes)}, not {', '.join(dtypes)}"
        )
    return replace(claimed, dtypes=tuple(dtypes))


def _own(said: Said, claimed: Subject) -> list[Case]:
    """Return the cases of the shapes and of the files that are asked for."""
    operation = claimed.operation
    files = [load_data(path, operation=operation) for path in said.get("data", ())]
    for case in files:
        if case.dtype not in claimed.dtypes:
            raise CannotRunError(
                f"{case.why} is {case.dtype}, and {claimed.name} is judged in "
                f"{', '.join(claimed.dtypes)}"
            )
    shapes = dict.fromkeys(map(shape_of, said.get("shapes", ())))
    return files + [
        case_of_shape(shape, dtype, operation=operation)
        for dtype in claimed.dtypes
        for shape in shapes
    ]


def _domain(said: Said, largest: float, kappa: float) -> Domain:
    """Return what the grade is about."""
    limit, condition = said.get("largest"), said.get("kappa")
    return Domain(largest if limit is None else limit, kappa if condition is None else condition)


def _origin(target: str, process: SubjectProcess, said: Said) -> Origin:
    """Return where the subject is found again, from any folder, and how it is called."""
    if dotted := dotted_path(target):
        found = PREFIX.rstrip(":"), dotted
    else:
        file, name = split_target(target)
        found = str(file.resolve()), name
    told = process.description
    return Origin(*found, told["callable"], told["backward"], said.get("operation", ""))


def _elsewhere(*_: object) -> None:
    raise TypeError("this subject runs in another process")
