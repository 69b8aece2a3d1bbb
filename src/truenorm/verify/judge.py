"""Judge a subject: put every case to it, then grade what came back."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.baselines.comparing import against
from truenorm.verify.baselines.file import read
from truenorm.verify.collecting.one_by_one import collect, outputs_of
from truenorm.verify.collecting.places import Place, origin_of
from truenorm.verify.collecting.spread import spread
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import Record, Runner
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.runs.trial import try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

__all__ = ["check", "graded", "judged", "scope", "verify"]

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
