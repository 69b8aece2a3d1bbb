"""Judge a subject: put every case to it, then grade what came back."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import expected
from truenorm.verify.baselines.comparing import against
from truenorm.verify.baselines.file import read
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.large import large_call
from truenorm.verify.grading.own.measured import own_records
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import GaveUpError, Record, Runner, calls_of
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.runs.trial import try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

__all__ = ["check", "collect", "graded", "judged", "origin_of", "scope", "verify"]


def scope(subject: Subject, level: str, seed: int = 0) -> list[Case]:
    """Return the cases that a subject has to pass."""
    return [
        case
        for dtype in subject.dtypes
        for case in cases(dtype, level, subject.also, operation=subject.operation, seed=seed)
    ]


def collect(
    runner: Runner, suite: Sequence[Case], progress: Progress | None = None
) -> list[Record]:
    """Put each case to a subject in every way that belongs to it, as far as it lasts."""
    steps = 2 * len(suite)
    tell = progress or (lambda *_: None)
    # First: a subject may leave the processor in a state in which subnormal numbers are zero.
    for done, case in enumerate(suite):
        if not is_own(case):
            tell(done, steps, f"exact answers: {case.name}")
            expected(case)
    records: list[Record] = []
    for done, case in enumerate(suite, start=len(suite)):
        tell(done, steps, case.name)
        try:
            if is_own(case):
                records += own_records(runner, case, partial(_told, tell, done, steps, case.name))
            else:
                records += _records_of(runner, case)
        except GaveUpError:
            return records
    tell(steps, steps, "grading")
    return records


def _told(tell: Progress, done: int, steps: int, name: str, what: str) -> None:
    """Say how far a case is that takes long by itself."""
    tell(done, steps, f"{name}: {what}")


def _records_of(runner: Runner, case: Case) -> Iterator[Record]:
    """Yield what comes back from each way of putting a case; after a failure no other is tried."""
    plain = None
    for call in calls_of(case):
        record = runner.run(case, call)
        yield record
        if record.failure:
            return
        plain = plain or record
    if case.family == "large" and plain is not None:
        yield from large_call(runner, case, plain)


def _outputs(subject: Subject, origin: Origin, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the results that a subject has; of a command they are seen from what it writes."""
    if origin.callable:
        return subject.outputs
    written = {output for record in records for output in record.results}
    return tuple(output for output in subject.outputs if output in written) or subject.outputs


def judged(
    subject: Subject,
    runner: Runner,
    origin: Origin,
    *,
    level: str = "quick",
    require: str = "stable",
    progress: Progress | None = None,
    own: Sequence[Case] = (),
    baseline: str | Path | None = None,
) -> Report:
    """Try a call, then collect and grade, and hold that against a baseline."""
    known = None if baseline is None else read(Path(baseline))  # now, not after a long run
    suite = [*scope(subject, level), *own]
    tried = try_a_call(subject, runner, suite)
    records = [*tried, *collect(runner, suite, progress)]
    report = grade(
        subject.name,
        suite,
        records,
        outputs=_outputs(subject, origin, records),
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
) -> Report:
    """Judge a layer normalization.

    Its functions are called in this process, so that a crash of theirs is one of this process;
    ``truenorm verify file.py:subject`` calls them in another one.

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
    return judged(
        subject,
        runner_for(subject),
        origin_of(subject),
        level=level,
        require=require,
        progress=progress,
        own=own,
        baseline=baseline,
    )


def origin_of(subject: Subject) -> Origin:
    """Find the name and the file of a subject in the modules that are loaded."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file:
            for name, value in list(vars(module).items()):
                if value is subject:
                    return Origin.of(subject, file, name)
    return Origin.of(subject)


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
        outputs=_outputs(subject, origin, records),
        require=require,
        origin=origin,
        recipe=recipe or subject.recipe,
    )
