"""Judge a subject: run every case, collect the records, and grade them.

The cases are run in this process, in a process of the subject, or by the workers of an executor.
"""

import atexit
import math
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypedDict, TypeVar, Unpack

import numpy as np

from truenorm.tools.arguments import require_type
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.tools.text import parse_shape
from truenorm.verify.baseline import compare_with_baseline, read_baseline
from truenorm.verify.diagnosis.accuracy import without_match
from truenorm.verify.diagnosis.conduct import depends_on_calls
from truenorm.verify.equality import Equality, common_cases, compare_runners
from truenorm.verify.grading.checks import check_case
from truenorm.verify.grading.domain import split_by_domain
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.large_calls import large_call
from truenorm.verify.grading.report import Finding, Report
from truenorm.verify.grading.user_cases import run_user_case
from truenorm.verify.operation import EVERYWHERE, Case, Domain
from truenorm.verify.oracle import (
    EXPECTED_BY_CASE,
    Arrays,
    compute_exact,
    expected,
    forget,
    load_or_compute,
    remember,
)
from truenorm.verify.running.loading import dotted_path, file_and_name
from truenorm.verify.running.process import MAX_DEATHS, START_SECONDS, SubjectProcess
from truenorm.verify.running.records import (
    ALONE,
    FEW_ELEMENTS,
    Call,
    CannotRunError,
    GaveUpError,
    Record,
    Runner,
    calls_of,
)
from truenorm.verify.running.runners import runner_for, try_a_call
from truenorm.verify.running.torch_subject import DTYPES, TRIAL_SHAPE
from truenorm.verify.subject import Subject, SubjectSpec, require_subject
from truenorm.verify.suite import case as case_named
from truenorm.verify.suite import cases
from truenorm.verify.user_cases import (
    YOUR_DATA,
    case_of_shape,
    is_user_case,
    load_data,
)

MOST_ANSWERS = 3000
"""Answers of earlier runs in memory: those of all operations at the full level are gigabytes."""
TASK_ELEMENTS = 2**13
"""Elements of x in the cases of a task: their exact answers take a second at most."""
PENDING_TASKS = 4096
"""Submitted tasks: each is a few names, and no cluster has so many workers."""
Item = TypeVar("Item")
Result = TypeVar("Result")


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
    executor: Executor | None = None,
) -> Report:
    """Judge a layer normalization.

    The functions of the subject are called in this process: if they crash, it crashes.
    ``truenorm verify file.py:subject`` and workers call them in another process.

    Parameters
    ----------
    subject : Subject
    level : str
        ``quick`` or ``full``.
    require : str
        The least grade that passes: wrong, unstable, conditional, stable, faithful or correct.
    strict : bool
        Require the grade for all rows, unless the subject declares a domain, and for sums over
        rows the bound of other results. By default, elements of at most 1e4 and condition numbers
        of at most 10 count, and a sum over n rows may have log2(n) times the error.
    progress : callable, optional
        Called with the number of cases done, their total, and the name of the next.
    own : sequence of Case
        User cases, which `case_of_shape`, `case_from` or `load_data` returned.
    baseline : str or Path, optional
        A file of known findings, which do not fail the report; `update_baseline` writes it.
    batch : str
        ``require``, or ``warn`` for a library that does not promise batch invariance: rows whose
        bits depend on the batch are then a warning.
    executor : concurrent.futures.Executor, optional
        Its workers run the cases. They load the subject by name, so it must be defined at the top
        level of a file. Except for dates and times, the report is the same. `own` cases are run
        by this process.

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
    spec = spec_of(subject)
    if executor is None:
        runner = runner_for(subject)
        return judge_runner(runner, spec, settings, partial(collect, runner))
    remote = RemoteSubject.of(spec)
    with remote.start() as process:
        return judge_runner(
            process, spec, settings, partial(distribute, executor, remote, process)
        )


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
        One of `cases`, or one that `case_of_shape`, `case_from` or `load_data` returned.
    require : str
        ``stable``, ``faithful`` or ``correct``.
    recipe : str
        The rounding recipe to compare with; by default, that of the subject.
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
    __tracebackhide__ = True  # pytest shows the line of the test, and none of these
    records = collect(runner_for(subject), [case])
    spec = SubjectSpec.of(subject)
    report = grade_records(
        subject, [case], records, spec, require=require, recipe=recipe, strict=strict
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


def judge_runner(
    runner: Runner,
    spec: SubjectSpec,
    settings: RunSettings,
    collecting: Callable[[Sequence[Case], Progress | None], list[Record]],
) -> Report:
    """Try a call, collect and grade the records, and compare the report with the baseline."""
    subject, baseline = runner.subject, settings.baseline
    # Read it first: a malformed file must not waste a long run.
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
    """Grade the records of some cases, by default also those outside the subject's domain."""
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
    """Return the outputs of a subject; a command has those that it wrote."""
    if subject.command is None:
        return subject.outputs
    written = {output for record in records for output in record.results}
    return tuple(output for output in subject.outputs if output in written) or subject.outputs


def spec_of(subject: Subject) -> SubjectSpec:
    """Find the name and the file of a subject in the modules that are loaded.

    The module of its function is searched first, since others may import the subject from there.
    The running script is searched last: a name there may exist only while it runs.
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
                    return SubjectSpec.of(subject, file, name)
    return SubjectSpec.of(subject)


class SubjectOptions(TypedDict, total=False):
    """Options of the command line that override what a subject says of itself.

    `operation` as text, `recipe`, the `dtypes` to judge, and the domain: the `largest` number and
    `kappa`. `shapes` and `data` files add user cases.
    """

    operation: str | None
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
    strict: bool = False,
    progress: Progress | None = None,
    baseline: Path | None = None,
    batch: str = "require",
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    start_seconds: float = START_SECONDS,
    executor: Executor | None = None,
    **options: Unpack[SubjectOptions],
) -> Report:
    """Judge the subject of ``file.py:name`` in a process of its own.

    The target may also be ``torch:package.module.function``, whose types are float32 and bfloat16
    by default. `python` is the interpreter of another environment that can import truenorm; the
    workers of an `executor` use their own.
    """
    process = SubjectProcess(
        target,
        operation=options.get("operation") or "",
        dtypes=options.get("dtypes"),
        python=python,
        environment=environment,
        start_seconds=start_seconds,
    )
    with process:
        spec = use_options(process, target, options, strict=strict)
        user_cases = _user_cases(process.subject, options)
        settings = RunSettings(level, require, progress, user_cases, baseline, strict, batch=batch)
        collecting = partial(collect, process)
        if executor is not None:
            remote = RemoteSubject.of(spec, start_seconds)
            collecting = partial(distribute, executor, remote, process)
        return judge_runner(process, spec, settings, collecting)


def compare_targets(
    first: str,
    second: str,
    *,
    level: str = "quick",
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    **options: Unpack[SubjectOptions],
) -> Equality:
    """Compare the bits of two subjects, each of which runs in a process of its own."""
    operation = options.get("operation") or ""
    start = partial(
        SubjectProcess,
        operation=operation,
        dtypes=options.get("dtypes"),
        start_seconds=start_seconds,
    )
    with start(first) as one, start(second) as other:
        use_options(one, first, options, strict=True)
        use_options(other, second, options, strict=True)
        suite = common_cases(one.subject, other.subject, level)
        dtypes = {case.dtype for case in suite}
        suite += [case for case in _user_cases(one.subject, options) if case.dtype in dtypes]
        return compare_runners(one, other, suite, level=level, progress=progress)


def use_options(
    process: SubjectProcess, target: str, options: SubjectOptions, *, strict: bool = False
) -> SubjectSpec:
    """Override claims of the subject of a process, and return its spec."""
    dtypes = options.get("dtypes") or (DTYPES if dotted_path(target) else None)
    options = {**options, "dtypes": dtypes}
    process.subject = with_options(process.subject, options, strict=strict)
    return SubjectSpec.of(process.subject, *file_and_name(target), options.get("operation") or "")


def with_options(subject: Subject, options: SubjectOptions, *, strict: bool = False) -> Subject:
    """Return a subject with another recipe, with fewer types and with another domain."""
    dtypes = options.get("dtypes") or subject.dtypes
    if not set(dtypes) <= set(subject.dtypes):
        raise CannotRunError(
            f"{subject.name} claims {', '.join(subject.dtypes)}, not {', '.join(dtypes)}"
        )
    largest, kappa, domain = options.get("largest"), options.get("kappa"), subject.domain
    if largest is not None or kappa is not None:
        domain = subject.required_domain(strict=strict)
        largest = domain.largest if largest is None else largest
        domain = Domain(largest, domain.kappa if kappa is None else kappa)
    recipe = options.get("recipe") or subject.recipe
    return replace(subject, dtypes=tuple(dtypes), recipe=recipe, domain=domain)


def _user_cases(subject: Subject, options: SubjectOptions) -> list[Case]:
    operation = subject.operation
    files = []
    for path in options.get("data", ()):
        case = load_data(path, operation=operation)
        if case.dtype in subject.dtypes:
            files.append(case)
            continue
        files += [load_data(path, operation=operation, dtype=dtype) for dtype in subject.dtypes]
    shapes = dict.fromkeys(map(parse_shape, options.get("shapes", ())))
    return files + [
        case_of_shape(shape, dtype, operation=operation)
        for dtype in subject.dtypes
        for shape in shapes
    ]


def hold_answers(suite: Sequence[Case], progress: Progress | None) -> None:
    """Compute the exact answers that are not in memory yet.

    This comes before the first call: a subject may set the processor to flush subnormal numbers
    to zero. Answers of earlier runs are dropped if they are many.
    """
    tell = progress or (lambda *_: None)
    of_suite = [case for case in suite if not (is_user_case(case) or case.compared)]
    if len(EXPECTED_BY_CASE) > MOST_ANSWERS and not EXPECTED_BY_CASE.keys() >= {*of_suite}:
        EXPECTED_BY_CASE.clear()
    for done, case in enumerate(of_suite):
        if case not in EXPECTED_BY_CASE:
            tell(done, 2 * len(suite), f"exact answers: {case.name}")
            expected(case)


def collect(
    runner: Runner, suite: Sequence[Case], progress: Progress | None = None
) -> list[Record]:
    """Run all calls of each case and return the records, up to where the subject is given up."""
    hold_answers(suite, progress)
    steps = 2 * len(suite)
    tell = progress or (lambda *_: None)
    records: list[Record] = []
    for done, case in enumerate(suite, start=len(suite)):
        tell(done, steps, case.name)
        try:
            if is_user_case(case):
                tell_step = partial(_tell_step, tell, done, steps, case.name)
                records += run_user_case(runner, case, tell_step)
            else:
                records += records_of(runner, case)
        except GaveUpError:
            return records
    tell(steps, steps, "grading")
    return records


def _tell_step(tell: Progress, done: int, steps: int, name: str, step: str) -> None:
    tell(done, steps, f"{name}: {step}")


def records_of(runner: Runner, case: Case) -> Iterator[Record]:
    """Yield the record of each call of a case; after a failure, no other call is made."""
    plain = None
    for call in calls_of(case):
        record = runner.run(case, call)
        yield record
        if record.failure:
            return
        plain = plain or record
    if case.family == "large" and plain is not None:
        yield from large_call(runner, case, plain)


WRONG = ("ordinary", "finite")
"""Checks of results that no condition number explains."""
MOST_ALONE = 2
"""Cases that are run alone: each one starts a process."""


def run_alone(
    process: SubjectProcess,
    suite: Sequence[Case],
    records: Sequence[Record],
    findings: Collection[Finding],
) -> list[Record]:
    """Run cases of findings without a matching hypothesis again, each in a new process.

    Return the records whose results are right there: these depend on earlier calls. Loading a
    function calls it with `TRIAL_SHAPE`, so that no case of this width would be the first.
    """
    unexplained = {
        (each.dtype, each.output)
        for each in findings
        if each.guard in WRONG and without_match(each.cause) == each.cause
        if not depends_on_calls(each.cause)
    }
    alone: list[Record] = []
    tried = 0
    for case in suite:
        if not unexplained or tried == MOST_ALONE or process.deaths >= MAX_DEATHS:
            break
        if is_user_case(case) or case.kind != "ordinary" or case.shape[1] == TRIAL_SHAPE[1]:
            continue
        if math.prod(case.shape) <= FEW_ELEMENTS:
            of_case = [record for record in records if record.case == case.name]
            symptoms, _ = check_case(case, of_case, process.subject.outputs)
            wrong = {each.type_and_output for each in symptoms if each.guard in WRONG}
            if wrong & unexplained:
                unexplained -= wrong
                tried += 1
                with process.another() as other:
                    record = other.run(case, Call(ALONE))
                symptoms, _ = check_case(case, [*of_case, record], process.subject.outputs)
                if any(each.guard == "history" for each in symptoms):
                    alone.append(record)
    return alone


class RemoteSubject(NamedTuple):
    """A subject that workers load from its file, on any machine that has it."""

    target: str  # as in `SubjectSpec`
    operation: str = ""
    start_seconds: float = START_SECONDS  # time limit of loading
    run: str = ""  # id of the run: workers outlive a run, and files change

    @classmethod
    def of(cls, spec: SubjectSpec, start_seconds: float = START_SECONDS) -> "RemoteSubject":
        """Return the subject of a new run; raise ValueError if it is defined in no file."""
        if not spec.file:
            raise ValueError(
                "workers load a subject by its name, and no file defines this one: put it at the "
                "top level of a file, as subject = truenorm.verify.Subject(...)"
            )
        return cls(spec.target, spec.operation, start_seconds, uuid.uuid4().hex)

    def start(self) -> SubjectProcess:
        """Start the process of the subject."""
        return SubjectProcess(
            self.target, operation=self.operation, start_seconds=self.start_seconds
        )


class _ThreadState(threading.local):
    """The subject process of one thread of a worker: calls of two threads must not mix."""

    remote = RemoteSubject("")
    process: SubjectProcess | None = None


_thread = _ThreadState()
_processes: set[SubjectProcess] = set()


def process_of(remote: RemoteSubject) -> SubjectProcess:
    """Return the process of a subject in a worker: it is started once for each run."""
    if _thread.process is None or _thread.remote != remote:
        if _thread.process is not None:
            _end(_thread.process)
            _thread.process = None
        _thread.remote, _thread.process = remote, remote.start()
        _processes.add(_thread.process)
    _thread.process.reset_deaths()
    return _thread.process


def _end(process: SubjectProcess) -> None:
    process.__exit__()
    _processes.discard(process)


@atexit.register
def _end_all() -> None:
    for process in list(_processes):
        _end(process)


class CaseRun(NamedTuple):
    """The records of one case and its exact answers."""

    case: str
    records: list[Record]
    exact: Arrays


def run_case(runner: Runner, case: Case, exact: Arrays) -> CaseRun:
    """Run all calls of a case, up to where the subject is given up."""
    records: list[Record] = []
    with suppress(GaveUpError):
        records += records_of(runner, case)
    return CaseRun(case.name, records, exact)


def answers_to(case: Case) -> Arrays:
    """Return the exact answers to a case, and remember them until `forget` is called."""
    exact = load_or_compute(case, compute_exact)
    remember(case, exact)
    return exact


def run_named(remote: RemoteSubject, names: Sequence[str]) -> list[CaseRun]:
    """Run cases by their names; this is called in a worker."""
    process = process_of(remote)
    results = []
    for name in names:
        case = case_named(name, operation=process.subject.operation)
        results.append(run_case(process, case, answers_to(case)))
        forget([case])
        if process.deaths >= MAX_DEATHS:
            break
    return results


def distribute(
    executor: Executor,
    remote: RemoteSubject,
    process: SubjectProcess,
    suite: Sequence[Case],
    progress: Progress | None = None,
) -> list[Record]:
    """Collect records by the workers of an executor: the same as `collect`, in the same order.

    User cases have no name that a worker could make them from: they are run by `process`.
    """
    named = {case.name: case for case in suite if not is_user_case(case)}
    user_cases = [case for case in suite if is_user_case(case)]
    records: list[Record] = []
    tell = progress or (lambda *_: None)
    tell(0, len(named), "waiting for workers")
    finished = map_in_order(executor, partial(run_named, remote), _batches(named.values()))
    for number, result in enumerate(result for results in finished for result in results):
        tell(number, len(named), result.case)
        remember(named[result.case], result.exact)
        for record in result.records:
            records.append(record)
            process.deaths += record.deaths
            if process.deaths >= MAX_DEATHS:  # as in `collect`, later records are dropped
                return records
    return records + (collect(process, user_cases, progress) if user_cases else [])


def _batches(suite: Iterable[Case]) -> Iterator[list[str]]:
    """Yield the names of cases in batches of at least `TASK_ELEMENTS` elements."""
    names: list[str] = []
    size = 0
    for case in suite:
        names.append(case.name)
        size += int(np.prod(case.shape)) // case.repeats
        if size >= TASK_ELEMENTS:
            yield names
            names, size = [], 0
    if names:
        yield names


def map_in_order(
    executor: Executor, work: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Yield the results of items in their order, and keep at most `PENDING_TASKS` of them."""
    remaining = iter(items)
    pending: deque[Future[Result]] = deque()
    try:
        pending.extend(executor.submit(work, item) for item in islice(remaining, PENDING_TASKS))
        while pending:
            yield pending[0].result()
            pending.popleft()
            pending.extend(executor.submit(work, item) for item in islice(remaining, 1))
    except BrokenExecutor as broken:
        raise CannotRunError(
            f"a worker of {type(executor).__name__} has ended: {broken}. It may have run out of "
            "memory; the subject cannot end it, since it runs in a process of its own"
        ) from broken
    finally:
        for future in pending:
            future.cancel()
