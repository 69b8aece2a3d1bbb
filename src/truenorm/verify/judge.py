"""Judge a subject: run every case, collect the records, and grade them.

`judge_runner` has the stages: try a call, collect records (`collecting`), grade them (`grading`),
and compare the report with a baseline.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Unpack

from truenorm.tools.arguments import require_choice, require_type
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.baseline import compare_with_baseline, read_baseline
from truenorm.verify.calls import Call
from truenorm.verify.collecting import collect, hold_answers, run_alone
from truenorm.verify.grading.domain import split_by_domain
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import BATCH, GRADES, Report
from truenorm.verify.operation import EVERYWHERE, Case, Domain
from truenorm.verify.running.process import START_SECONDS, SubjectProcess
from truenorm.verify.running.records import (
    CannotRunError,
    Record,
    Runner,
)
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectOptions, SubjectSpec, require_subject
from truenorm.verify.suite import cases, usual_cases
from truenorm.verify.time_limit import SECONDS
from truenorm.verify.user_cases import (
    YOUR_DATA,
    listed_cases,
)


def verify(
    subject: Subject,
    *,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    progress: Progress | None = None,
    own: Sequence[Case] = (),
    baseline: str | Path | None = None,
    batch: str = "require",
    time: float = SECONDS,
) -> Report:
    """Judge a layer normalization.

    The functions of the subject are called in this process: if they crash, it crashes.
    ``truenorm verify file.py:subject`` calls them in another process.

    Parameters
    ----------
    subject : Subject
    level : str
        ``quick`` or ``full``.
    require : str
        The least grade that passes: wrong, unstable, conditional, stable, faithful or correct.
    strict : bool
        Require the grade for all rows, unless the subject declares a domain, and require of sums
        over rows the bound of other results. By default, elements of at most 1e4 and condition
        numbers of at most 10 count, and a sum over n rows may have log2(n) times the error.
    progress : callable, optional
        Called with the number of cases done, their total, and the name of the next.
    own : sequence of Case
        User cases, which `case_of_shape`, `case_from` or `load_data` returned.
    baseline : str or Path, optional
        A file of known findings, which do not fail the report; `update_baseline` writes it.
    batch : str
        ``require``, or ``warn`` for a library that does not promise batch invariance: rows whose
        bits depend on the batch are then a warning.
    time : float
        The limit in seconds for the calls of the subject. Where they would take longer, the calls
        that show most are made, and the report lists the others.

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
    require_subject(subject)
    require_type("progress", progress, Callable | None, "a function")
    listed = "a list of cases, such as [case_of_shape((4, 8))]"
    require_type("own", own, Sequence, listed)
    for each in own:
        require_type("own", each, Case, listed)
    settings = RunSettings(level, require, progress, own, baseline, strict, batch=batch)
    runner = runner_for(subject)
    collecting = partial(collect, runner, seconds=time)
    return judge_runner(runner, spec_of(subject), settings, collecting)


def verify_target(
    target: str,
    *,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    progress: Progress | None = None,
    baseline: Path | None = None,
    batch: str = "require",
    time: float = SECONDS,
    start_seconds: float = START_SECONDS,
    jobs: int = 1,
    **options: Unpack[SubjectOptions],
) -> Report:
    """Judge the subject of ``file.py:name`` in a process of its own.

    The target may also be ``torch:package.module.function``, whose types are float32 and bfloat16
    by default. `jobs` processes compute exact answers.
    """
    with SubjectProcess(
        target,
        strict=strict,
        start_seconds=start_seconds,
        **options,
    ) as process:
        subject = process.subject
        shapes, data = options.get("shapes", ()), options.get("data", ())
        user_cases = listed_cases(shapes, data, subject.operation, subject.dtypes)
        settings = RunSettings(level, require, progress, user_cases, baseline, strict, batch=batch)
        collecting = partial(collect, process, seconds=time, jobs=jobs)
        return judge_runner(process, process.spec, settings, collecting)


def check(
    subject: Subject,
    case: Case,
    *,
    require: str = "stable",
    recipe: str = "",
    strict: bool = False,
) -> None:
    """Judge a subject on one case, in its domain or not; raise AssertionError if it fails.

    Parameters
    ----------
    subject : Subject
    case : Case
        A result of `cases`, `case_of_shape`, `case_from` or `load_data`.
    require : str
        ``stable``, ``faithful`` or ``correct``.
    recipe : str
        The rounding recipe to compare with; by default, the recipe of the subject.
    strict : bool
        By default, a sum over n rows may have log2(n) times the error of other results.

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
    __tracebackhide__ = True  # pytest shows the line of the test, and no line of this function
    require_subject(subject)
    alone = replace(case, compared=False)  # no other case has answers to grade
    records = collect(runner_for(subject), [alone])
    spec = subject.spec()
    report = grade_records(
        subject, [alone], records, spec, require=require, recipe=recipe, strict=strict
    )
    if not report.passed:
        symptoms = "; ".join(finding.symptom for finding in report.findings)
        raise AssertionError(f"{case.name} ({case.why}): {symptoms}")


@dataclass(frozen=True)
class RunSettings:
    """The settings of one run, as `verify` documents them."""

    level: str = "quick"
    require: str = "stable"
    progress: Progress | None = None
    user_cases: Sequence[Case] = ()
    baseline: str | Path | None = None
    strict: bool = False
    seed: int = 0
    batch: str = "require"

    def check(self) -> None:
        """Raise ValueError for a setting that is none of its choices."""
        require_choice("require", self.require, GRADES)
        require_choice("batch", self.batch, BATCH)


def judge_runner(
    runner: Runner,
    spec: SubjectSpec,
    settings: RunSettings,
    collecting: Callable[[Sequence[Case], Progress | None], list[Record]],
) -> Report:
    """Try a call, collect and grade the records, and compare the report with the baseline."""
    subject, baseline = runner.subject, settings.baseline
    # First: a wrong setting or a malformed file must not waste a long run.
    settings.check()
    known = None if baseline is None else read_baseline(Path(baseline))
    suite = [*scope(subject, settings.level, settings.seed), *settings.user_cases]
    if not isinstance(runner, SubjectProcess):
        hold_answers(suite, settings.progress)
    records = [*try_a_call(runner, suite), *collecting(suite, settings.progress)]
    grading = partial(
        grade_records,
        subject,
        suite,
        spec=spec,
        require=settings.require,
        level=settings.level,
        domain=subject.required_domain(strict=settings.strict),
        strict=settings.strict,
        batch=settings.batch,
    )
    report = grading(records)
    if isinstance(runner, SubjectProcess) and subject.command is None:
        within, _ = split_by_domain(suite, report.domain)
        alone = run_alone(runner, within, records, report.findings)
        report = grading([*records, *alone]) if alone else report
    facts = describe("date", "python", "numpy", "machine")
    files = [each.why for each in settings.user_cases if each.why.startswith(YOUR_DATA)]
    if files:
        facts["data"] = ", ".join(why.removeprefix(YOUR_DATA) for why in files)
    report = replace(report, machine=facts)
    return report if known is None else compare_with_baseline(report, known)


def try_a_call(runner: Runner, suite: Sequence[Case]) -> list[Record]:
    """Call a subject with ordinary rows; raise CannotRunError if it rejects all of its types.

    A crash or a hang may depend on the rows and is a finding: its record is returned.
    """
    subject, failure = runner.subject, ""
    for dtype in subject.dtypes:
        usual = usual_cases(suite, dtype)
        for case in usual:
            record = runner.run(case, Call())
            if not record.failure.startswith("raised "):
                return [record] if record.failure else []
            rows, size = case.shape
            failure = failure or f"{record.failure}, with {rows} rows of {size} in {dtype}"
        if not usual:
            return []
    raise CannotRunError(
        f"{subject.name} cannot be called: it {failure}.\n"
        f"The judge calls {subject.signature}; give another operation with --operation, or with "
        "operation= of the subject."
    )


def scope(subject: Subject, level: str, seed: int = 0) -> list[Case]:
    """Return the cases of all types and extensions that a subject claims."""
    return [
        case
        for dtype in subject.dtypes
        for case in cases(dtype, level, subject.also, operation=subject.operation, seed=seed)
    ]


def grade_records(
    subject: Subject,
    suite: Sequence[Case],
    records: Sequence[Record],
    spec: SubjectSpec,
    *,
    require: str = "stable",
    level: str = "quick",
    recipe: str = "",
    domain: Domain = EVERYWHERE,
    strict: bool = True,
    batch: str = "require",
) -> Report:
    """Grade the records of some cases, by default also of cases outside the domain."""
    return grade(
        subject.name,
        suite,
        records,
        outputs=outputs_of(subject, records),
        require=require,
        level=level,
        spec=spec,
        recipe=recipe or subject.recipe,
        domain=domain,
        strict=strict,
        batch=batch,
    )


def outputs_of(subject: Subject, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the outputs of a subject; a command has the outputs that it wrote."""
    if subject.command is None:
        return subject.outputs
    written = {output for record in records for output in record.results}
    return tuple(output for output in subject.outputs if output in written) or subject.outputs


def spec_of(subject: Subject) -> SubjectSpec:
    """Find the name and the file of a subject in the modules that are loaded.

    The module of its function is searched first, since other modules may import the subject. The
    running script is searched last: a name in the script may exist only while the script runs.
    """
    script, home = sys.modules.get("__main__"), getattr(subject.forward, "__module__", "")
    modules = sorted(
        sys.modules.values(),
        key=lambda each: (each is script, getattr(each, "__name__", "") != home),
    )
    for module in modules:
        file = getattr(module, "__file__", None)
        if file:
            for name, value in list(vars(module).items()):
                if value is subject:
                    spec: SubjectSpec = subject.spec(file, name)
                    return spec
    return subject.spec()
