"""Judge a subject: put every case to it, then grade what came back."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.baseline import against, read
from truenorm.verify.campaigns import Campaign, Drawing, ran
from truenorm.verify.collect import Place, collect, origin_of, outputs_of, spread
from truenorm.verify.equality import Equality, Side, common, compared
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case, Domain
from truenorm.verify.operations import parse_operation
from truenorm.verify.running.loading import PREFIX, dotted_path, split_target
from truenorm.verify.running.process import START_SECONDS, CannotRunError, SubjectProcess
from truenorm.verify.running.records import Record, Runner
from truenorm.verify.running.runners import runner_for, try_a_call
from truenorm.verify.running.torch_subject import DTYPES
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases
from truenorm.verify.user_cases import case_of_shape, load_data, parse_shape

Running = TypeVar("Running", bound=Runner)
Collecting = Callable[[Running, Sequence[Case], Progress | None], list[Record]]
"""Puts cases to a subject: `collect`, or by workers."""


def scope(subject: Subject, level: str, seed: int = 0) -> list[Case]:
    """Return the cases that a subject has to pass."""
    return [
        case
        for dtype in subject.dtypes
        for case in cases(dtype, level, subject.also, operation=subject.operation, seed=seed)
    ]


def judged(
    subject: Subject,
    runner: Running,
    origin: Origin,
    *,
    level: str = "quick",
    require: str = "stable",
    progress: Progress | None = None,
    own: Sequence[Case] = (),
    baseline: str | Path | None = None,
    collecting: Collecting[Running] = collect,
) -> Report:
    """Try a call, then collect and grade, and hold that against a baseline."""
    known = None if baseline is None else read(Path(baseline))  # now, not after a long run
    suite = [*scope(subject, level), *own]
    tried = try_a_call(subject, runner, suite)
    records = [*tried, *collecting(runner, suite, progress)]
    report = grade(
        subject.name,
        suite,
        records,
        outputs=outputs_of(subject, origin, records),
        require=require,
        level=level,
        origin=origin,
        recipe=subject.recipe,
        domain=subject.domain,
    )
    report = replace(report, machine=describe("date", "python", "numpy", "machine"))
    return report if known is None else against(report, known)


def verify(
    subject: Subject,
    *,
    level: str = "quick",
    require: str = "stable",
    progress: Progress | None = None,
    own: Sequence[Case] = (),
    baseline: str | Path | None = None,
    executor: Executor | None = None,
) -> Report:
    """Judge a layer normalization.

    Its functions are called in this process, so that a crash of theirs is one of this process;
    ``truenorm verify file.py:subject`` calls them in another one, and so do workers.

    Parameters
    ----------
    subject : Subject
    level : str
        ``quick`` or ``full``.
    require : str
        The least grade that passes: wrong, unstable, conditional, stable, faithful or correct.
    progress : callable, optional
        Called with the number of cases done, the number of all, and the name of the next.
    own : sequence of Case
        More cases, which `case_of_shape`, `case_from` or `load_data` returned.
    baseline : str or Path, optional
        A file of known findings, which pass; `update_baseline` writes it.
    executor : concurrent.futures.Executor, optional
        Whose workers put the cases to the subject, which they load by its name: it is at the top
        level of a file. But for dates and times, the report is the same. `own` cases are run from
        here.

    Returns
    -------
    Report
        ``report.passed``, ``report.grades``, ``report.findings``.

    Examples
    --------
    >>> import truenorm as tn
    >>> import truenorm.verify as tv
    >>> def forward(x, gamma, beta, eps):
    ...     return tn.layer_norm(x, gamma, beta, eps=eps)
    >>> report = tv.verify(tv.Subject(forward, name="truenorm", dtypes=["float32"]))
    >>> report.passed, report.grades[0].grade
    (True, 'correct')
    """
    judge = partial(
        judged,
        subject,
        level=level,
        require=require,
        progress=progress,
        own=own,
        baseline=baseline,
    )
    origin = origin_of(subject)
    if executor is None:
        return judge(runner_for(subject), origin)
    place = Place.of(origin)
    with place.process() as process:
        return judge(process, origin, collecting=partial(spread, executor, place))


def check(subject: Subject, case: Case, *, require: str = "stable", recipe: str = "") -> None:
    """Judge a subject on one case; raise AssertionError if it fails.

    Parameters
    ----------
    subject : Subject
    case : Case
        One of `cases`, or one that `case_of_shape`, `case_from` or `load_data` returned.
    require : str
        ``stable``, ``faithful`` or ``correct``.
    recipe : str
        Where it must round on the way; by default, where the subject says.

    Examples
    --------
    >>> import truenorm as tn
    >>> import truenorm.verify as tv
    >>> def one_pass(x, gamma, beta, eps):
    ...     mean = x.mean(axis=-1, keepdims=True)
    ...     var = (x * x).mean(axis=-1, keepdims=True) - mean * mean
    ...     return gamma * (x - mean) / (var + x.dtype.type(eps)) ** 0.5 + beta
    >>> subject = tv.Subject(one_pass)
    >>> tv.check(subject, tv.case("float32-normal-4x17"))
    >>> tv.check(subject, tv.case("float32-offset-1e4-4x67"))
    Traceback (most recent call last):
        ...
    AssertionError: float32-offset-1e4-4x67 (standard deviation 1, mean 10000): y...
    """
    __tracebackhide__ = True  # pytest shows the test that failed, and none of these lines
    records = collect(runner_for(subject), [case])
    report = graded(subject, [case], records, Origin.of(subject), require=require, recipe=recipe)
    if not report.passed:
        symptoms = "; ".join(finding.symptom for finding in report.findings)
        raise AssertionError(f"{case.name} ({case.why}): {symptoms}")


def graded(
    subject: Subject,
    suite: Sequence[Case],
    records: Sequence[Record],
    origin: Origin,
    *,
    require: str = "stable",
    recipe: str = "",
) -> Report:
    """Grade what came back in some cases, whether or not they are in the domain of a subject."""
    return grade(
        subject.name,
        suite,
        records,
        outputs=outputs_of(subject, origin, records),
        require=require,
        origin=origin,
        recipe=recipe or subject.recipe,
    )


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
        known = parse_operation(told["operation"])
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
    shapes = dict.fromkeys(map(parse_shape, said.get("shapes", ())))
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
