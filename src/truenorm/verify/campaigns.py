"""Campaigns: judge a subject on many random cases, and keep counts instead of the cases."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Unpack

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.bounds import GRADES, POWERS, compare_with_answers
from truenorm.verify.cases.families import SEEDS
from truenorm.verify.grading.checks import (
    GUARDS,
    MeasuredResult,
    check_case,
    relax_sums,
)
from truenorm.verify.grading.grades import (
    case_result,
    drop_unclaimed,
    grade,
    grade_output,
    split_by_domain,
)
from truenorm.verify.grading.report import ACCURACY, CaseResult, Finding
from truenorm.verify.judge import (
    CaseRun,
    RemoteSubject,
    SubjectOptions,
    answers_to,
    map_in_order,
    outputs_of,
    process_of,
    run_case,
    spec_of,
    use_options,
)
from truenorm.verify.operation import Case, Domain, Operation
from truenorm.verify.oracle import expected, forget, remember
from truenorm.verify.running.process import MAX_DEATHS, START_SECONDS, SubjectProcess
from truenorm.verify.running.records import Call, Runner
from truenorm.verify.running.runners import runner_for, try_a_call
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.suite import LEVELS, seeded_cases

PART_CASES = 16
"""Cases of a part: their exact answers take a second or two."""
KEPT_FAILURES = 4
"""Cases kept for each kind of failure, for findings and their diagnosis."""
FailureKind = tuple[str, str, str]
"""Guard, type and output."""


@dataclass(frozen=True)
class Judgement:
    """The results of a campaign for one output in one type.

    `elements` were compared with exact answers, of which `answers` were computed: repeated rows
    of a case share one. `wrong` elements are below the required grade.
    """

    dtype: str
    output: str
    grade: str
    cases: int
    elements: int
    answers: int
    wrong: int
    max_ulp: float
    max_natural: float
    worst_case: str


@dataclass(frozen=True)
class Campaign:
    """The results of many random cases.

    Attributes
    ----------
    subject, level, require : str
    seed : int
        The first seed of the cases.
    asked, cases : int
        Number of cases requested, and number judged.
    failed : int
        Cases with a wrong element or another finding.
    left_out, not_run : int
        Cases outside the domain of the subject, and cases that were not run.
    elements, answers, wrong : int
        Sums over all results.
    results : tuple of Judgement
    findings : tuple of Finding
        As in a `Report`, from the first few cases that show each.
    seconds : float
        Elapsed time.
    worked, called : float
        Processor time of judging and time in calls of the subject, summed over all workers.
    machine : dict of str to str
    operation : Operation
    """

    subject: str
    level: str
    require: str
    seed: int
    asked: int
    cases: int
    failed: int
    left_out: int
    not_run: int
    elements: int
    answers: int
    wrong: int
    results: tuple[Judgement, ...]
    findings: tuple[Finding, ...]
    seconds: float
    worked: float
    called: float
    machine: dict[str, str]
    operation: Operation = field(kw_only=True, repr=False)

    @property
    def passed(self) -> bool:
        """True if all cases were run and none failed."""
        return bool(self.results) and not self.failed and not self.not_run


class CampaignSettings(NamedTuple):
    """The settings of a campaign, as `campaign` documents them."""

    cases: int
    seed: int
    level: str
    require: str
    strict: bool = False

    def check(self) -> None:
        """Raise ValueError for a setting that is out of range."""
        for value, name in ((self.cases, "cases"), (self.seed, "seed")):
            if value < 1:
                raise ValueError(f"{name} must be 1 or above, got {value}")
        if self.require not in GRADES:
            names = ", ".join(GRADES)
            raise ValueError(f"require must be one of {names}; got {self.require!r}")
        if self.level not in LEVELS:
            raise ValueError(f"level must be one of {', '.join(LEVELS)}; got {self.level!r}")


def campaign(
    subject: Subject,
    cases: int,
    *,
    seed: int = 1,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Campaign:
    """Judge a layer normalization on many random cases of the families.

    Memory use does not depend on the number of cases: only counts and the records of the first
    few failures are kept. Except for times, an executor does not change what is returned.

    Parameters
    ----------
    subject : Subject
    cases : int
        Number of cases; each type has an equal share.
    seed : int
        The first seed, 1 or above. Further cases are drawn with the next seeds.
    level : str
        ``quick`` or ``full``, which has more widths and longer rows.
    require : str
        The least grade of an element: conditional, stable, faithful or correct.
    strict : bool
        As in `verify`: by default, cases beyond what models feed a norm are left out.
    progress : callable, optional
        Called with the number of cases done, their total, and the number of elements so far.
    executor : concurrent.futures.Executor, optional
        Its workers judge the cases. They load the subject by name, so it must be defined at the
        top level of a file.

    Returns
    -------
    Campaign
        ``campaign.passed``, ``campaign.elements``, ``campaign.wrong``, ``campaign.findings``.

    Examples
    --------
    >>> import truenorm as tn
    >>> import truenorm.verify as tv
    >>> def forward(x, gamma, beta, eps):
    ...     return tn.layer_norm(x, gamma, beta, eps=eps)
    >>> result = tv.campaign(tv.Subject(forward), 3, seed=7, require="correct", strict=True)
    >>> result.passed, result.cases, result.wrong
    (True, 3, 0)
    """
    spec = spec_of(subject)
    settings = CampaignSettings(cases, seed, level, require, strict)
    if executor is None:
        return _run(runner_for(subject), spec, settings, progress)
    remote = RemoteSubject.of(spec)
    with remote.start() as process:
        return _run(process, spec, settings, progress, (executor, remote))


def campaign_target(
    target: str,
    settings: CampaignSettings,
    *,
    progress: Progress | None = None,
    start_seconds: float = START_SECONDS,
    executor: Executor | None = None,
    **options: Unpack[SubjectOptions],
) -> Campaign:
    """Run a campaign on the subject of a target string, in a process of its own."""
    operation = options.get("operation") or ""
    process = SubjectProcess(
        target,
        operation=operation,
        dtypes=options.get("dtypes"),
        start_seconds=start_seconds,
    )
    with process:
        spec = use_options(process, target, options, strict=settings.strict)
        workers = None if executor is None else (executor, RemoteSubject.of(spec, start_seconds))
        return _run(process, spec, settings, progress, workers)


class Criteria(NamedTuple):
    """What the cases of a campaign are compared with; the same for all its parts."""

    level: str
    require: str
    also: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: Domain
    strict: bool


class Part(NamedTuple):
    """Some of the cases of a type that a seed draws."""

    dtype: str
    seed: int
    start: int
    stop: int


Workers = tuple[Executor, RemoteSubject]


def _run(
    runner: Runner,
    spec: SubjectSpec,
    settings: CampaignSettings,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Campaign:
    """Try a call, then judge part by part, and sum up the counts."""
    settings.check()
    cases, seed, level, require, strict = settings
    start = time.perf_counter()
    subject = runner.subject
    if subject.recipe:
        raise ValueError(
            f"{subject.name} claims the recipe {subject.recipe!r}, which random cases do not "
            "show: judge it by 'truenorm verify', or by truenorm.verify.verify in Python, and "
            "leave recipe out of the subject of a campaign"
        )
    domain = subject.required_domain(strict=strict)
    criteria = Criteria(level, require, tuple(subject.also), subject.outputs, domain, strict)
    first = {dtype: cases_of(subject.operation, criteria, dtype, seed) for dtype in subject.dtypes}
    suite = [case for some in first.values() for case in some]
    total = Tally(deaths=sum(each.deaths for each in try_a_call(runner, suite)))
    if subject.command is not None:
        outputs = outputs_of(subject, [runner.run(suite[0], Call())])
        criteria = criteria._replace(outputs=outputs)
    tell = progress or (lambda *_: None)
    parts = _parts({dtype: len(some) for dtype, some in first.items()}, cases, seed, SEEDS[level])
    tell(0, cases, "waiting for workers" if workers else "")
    for tally in _tallies(runner, criteria, parts, workers):
        total.add(tally)
        whole = total.whole()
        counts = f"{whole.elements:,} elements, {whole.wrong:,} wrong"
        tell(total.cases + total.left_out, cases, counts)
        if total.deaths >= MAX_DEATHS:
            break
    whole = total.whole()
    return Campaign(
        subject.name,
        level,
        require,
        seed,
        cases,
        total.cases,
        total.failed,
        total.left_out,
        cases - total.cases - total.left_out,
        whole.elements,
        whole.answers,
        whole.wrong,
        tuple(
            _judgement(dtype, output, total.counts[dtype, output])
            for dtype in subject.dtypes
            for output in criteria.outputs
            if (dtype, output) in total.counts
        ),
        _findings(subject, criteria, total, spec),
        time.perf_counter() - start,
        total.worked,
        total.called,
        describe("date", "python", "numpy", "machine"),
        operation=subject.operation,
    )


def cases_of(operation: Operation, criteria: Criteria, dtype: str, seed: int) -> list[Case]:
    """Return the cases of a type and a seed."""
    also = set(criteria.also)
    return [
        each for each in seeded_cases(operation, dtype, criteria.level, seed) if each.needs <= also
    ]


def _parts(sizes: Mapping[str, int], cases: int, seed: int, step: int) -> Iterator[Part]:
    """Yield parts until there are enough cases; `sizes` has the cases of a seed by type."""
    if not all(sizes.values()):
        raise ValueError("this operation has no random cases: they are the same with every seed")
    share, more = divmod(cases, len(sizes))
    remaining = {dtype: share + (place < more) for place, dtype in enumerate(sizes)}
    while any(remaining.values()):
        for dtype, size in sizes.items():
            count = min(size, remaining[dtype])
            for start in range(0, count, PART_CASES):
                yield Part(dtype, seed, start, min(start + PART_CASES, count))
            remaining[dtype] -= count
        seed += step


def _tallies(
    runner: Runner, criteria: Criteria, parts: Iterator[Part], workers: Workers | None
) -> Iterator["Tally"]:
    if workers is not None:
        executor, remote = workers
        yield from map_in_order(executor, partial(run_part, remote, criteria), parts)
        return
    for part in parts:
        if isinstance(runner, SubjectProcess):
            runner.reset_deaths()
        yield _tally(runner, criteria, part)


def run_part(remote: RemoteSubject, criteria: Criteria, part: Part) -> "Tally":
    """Judge a part of a campaign; this is called in a worker."""
    return _tally(process_of(remote), criteria, part)


@dataclass
class Count:
    """Counts of one output in one type, and the largest errors by kind of case."""

    cases: int = 0
    elements: int = 0
    answers: int = 0
    wrong: int = 0
    worst: dict[str, CaseResult] = field(default_factory=dict)

    def add(self, other: "Count") -> None:
        """Add the counts of later cases."""
        self.cases += other.cases
        self.elements += other.elements
        self.answers += other.answers
        self.wrong += other.wrong
        for kind, result in other.worst.items():
            self.worst[kind] = _worse(self.worst.get(kind, result), result)


def _worse(one: CaseResult, other: CaseResult) -> CaseResult:
    """Return the larger errors of two results, with the name of the worse case."""
    worst = max(one, other, key=lambda each: each.badness)
    return replace(
        worst,
        ulp=max(one.ulp, other.ulp),
        natural=max(one.natural, other.natural),
        correct=one.correct and other.correct,
    )


@dataclass
class Tally:
    """The counts of some cases."""

    cases: int = 0  # judged
    failed: int = 0  # cases with a failure
    left_out: int = 0  # cases outside the domain
    deaths: int = 0  # of the process of the subject
    worked: float = 0.0  # processor time
    called: float = 0.0  # time in calls of the subject
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)  # by type and output
    failures: Counter[FailureKind] = field(default_factory=Counter)  # cases by kind of failure
    # The first few failed cases: their part, records and kinds of failure.
    kept: list[tuple[Part, CaseRun, frozenset[FailureKind]]] = field(default_factory=list)

    def whole(self) -> Count:
        """Return the sum over all types and outputs."""
        total = Count()
        for count in self.counts.values():
            total.add(count)
        return total

    def add(self, other: "Tally") -> None:
        """Add the counts of later cases."""
        self.cases += other.cases
        self.failed += other.failed
        self.left_out += other.left_out
        self.deaths += other.deaths
        self.worked += other.worked
        self.called += other.called
        for place, count in other.counts.items():
            self.counts.setdefault(place, Count()).add(count)
        numbers: Counter[FailureKind] = Counter(kind for *_, kinds in self.kept for kind in kinds)
        for each in other.kept:
            if any(numbers[kind] < KEPT_FAILURES for kind in each[2]):
                self.kept.append(each)
                numbers.update(each[2])
        self.failures.update(other.failures)


def _tally(runner: Runner, criteria: Criteria, part: Part) -> Tally:
    """Run and judge the cases of a part, and count; exact answers are not kept."""
    tally = Tally()
    start = time.thread_time()  # elapsed time would include other threads
    suite = cases_of(runner.subject.operation, criteria, part.dtype, part.seed)
    for case in suite[part.start : part.stop]:
        exact = answers_to(case)
        if not split_by_domain([case], criteria.domain)[0]:
            tally.left_out += 1
        else:
            _add_case(tally, case, run_case(runner, case, exact), criteria, part)
        forget([case])
        if tally.deaths >= MAX_DEATHS:
            break
    tally.worked = time.thread_time() - start
    return tally


def _add_case(tally: Tally, case: Case, result: CaseRun, criteria: Criteria, part: Part) -> None:
    symptoms, judged = check_case(case, result.records, criteria.outputs)
    if not criteria.strict:
        symptoms, judged = relax_sums(symptoms, judged)
    symptoms, _ = drop_unclaimed(symptoms, criteria.also)
    wrong = {one.output: _add_output(tally, one, criteria.require) for one in judged}
    kinds: set[FailureKind] = {
        (each.guard, case.dtype, each.output)
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or wrong[each.output]
    }
    explained = {output for _, _, output in kinds}
    kinds |= {
        ("rounding", case.dtype, output)
        for output, count in wrong.items()
        if count and output not in explained
    }
    tally.cases += 1
    tally.deaths += sum(record.deaths for record in result.records)
    tally.called += sum(record.seconds for record in result.records)
    if kinds:
        kept = [(part, result, frozenset(kinds))]
        tally.add(Tally(failed=1, failures=Counter(kinds), kept=kept))


def _add_output(tally: Tally, one: MeasuredResult, require: str) -> int:
    """Count the elements of a result and return how many are wrong."""
    exact = expected(one.case).given(one.record.results)
    off = compare_with_answers([(slice(None), exact)], one.output, one.result, require)
    if require in POWERS and not one.error.needs:  # it may be a sum whose bound was relaxed
        off = replace(off, count=int(exact.misplaced(one.output, one.result).sum()))
    rows = one.case.operation.is_rows(one.output)
    answers = off.total // one.case.repeats if rows else off.total
    count = Count(1, off.total, answers, off.count, {one.case.kind: case_result(one)})
    tally.counts.setdefault((one.case.dtype, one.output), Count()).add(count)
    return off.count


def _judgement(dtype: str, output: str, count: Count) -> Judgement:
    results = list(count.worst.values())
    worst = max(results, key=lambda each: each.badness)
    return Judgement(
        dtype,
        output,
        grade_output(results, tuple(GUARDS)),
        count.cases,
        count.elements,
        count.answers,
        count.wrong,
        max(each.ulp for each in results),
        max(each.natural for each in results),
        worst.case,
    )


def _findings(
    subject: Subject, criteria: Criteria, total: Tally, spec: SubjectSpec
) -> tuple[Finding, ...]:
    """Grade the failed cases that were kept, without the others."""
    suite, records = [], []
    for part, result, _ in total.kept:
        cases = cases_of(subject.operation, criteria, part.dtype, part.seed)
        (failed,) = (each for each in cases if each.name == result.case)
        case = replace(failed, needs=frozenset(criteria.also))  # all claims
        remember(case, result.exact)
        suite.append(case)
        records += result.records
    if not suite:
        return ()
    report = grade(
        subject.name,
        suite,
        records,
        outputs=criteria.outputs,
        require=criteria.require,
        level=criteria.level,
        spec=spec,
        strict=criteria.strict,
    )
    forget(suite)
    findings = []
    for each in report.findings:
        others = total.failures[each.guard, each.dtype, each.output] - 1
        findings.append(replace(each, also_in=max(each.also_in, others)))
    return tuple(findings)
