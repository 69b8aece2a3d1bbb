"""Campaigns: judge a subject on many random cases, and keep counts instead of the cases."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Unpack

from truenorm.tools.arguments import require_choice
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.bounds import GRADES, POWERS, compare_with_answers
from truenorm.verify.calls import Call
from truenorm.verify.grading.checks import check_case, relax_sums
from truenorm.verify.grading.consequences import drop_unclaimed
from truenorm.verify.grading.domain import split_by_domain
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.output_grades import case_result, grade_output
from truenorm.verify.grading.report import ACCURACY, BATCH, BATCH_INVARIANT, CaseResult, Finding
from truenorm.verify.grading.symptoms import GUARDS, MeasuredResult
from truenorm.verify.inputs.families import SEEDS
from truenorm.verify.judge import outputs_of, spec_of, try_a_call
from truenorm.verify.operation import Case, Domain, Operation
from truenorm.verify.oracle import expected, forget, remember
from truenorm.verify.running.process import (
    MAX_DEATHS,
    START_SECONDS,
    SubjectProcess,
)
from truenorm.verify.running.records import Runner
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectOptions, SubjectSpec, require_subject
from truenorm.verify.suite import LEVELS, seeded_cases
from truenorm.verify.workers import (
    CaseRun,
    RemoteSubject,
    answers_to,
    map_in_order,
    process_of,
    run_case,
)

PART_CASES = 16
"""Cases of a part: their exact answers take a second or two."""
KEPT_FAILURES = 4
"""Cases kept for each kind of failure, for findings and their diagnosis."""
FailureKind = tuple[str, str, str]
"""Guard, type and output."""


@dataclass(frozen=True)
class Judgement:
    """The results of a campaign for one output in one type.

    `elements` were compared with exact answers. `answers` were computed, since repeated rows of a
    case share answers. `wrong` elements are below the required grade.
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
        As in a `Report`, from the first few cases that show each finding.
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
    batch: str = "require"

    def check(self) -> None:
        """Raise ValueError for a setting that is out of range."""
        for value, name in ((self.cases, "cases"), (self.seed, "seed")):
            if value < 1:
                raise ValueError(f"{name} must be 1 or above, got {value}")
        require_choice("require", self.require, GRADES)
        require_choice("level", self.level, LEVELS)
        require_choice("batch", self.batch, BATCH)

    def fails(self, guard: str) -> bool:
        """Return True if a failure of a check fails the campaign, and is no warning."""
        return self.batch == "require" or GUARDS.get(guard) != BATCH_INVARIANT


def campaign(
    subject: Subject,
    cases: int,
    *,
    seed: int = 1,
    level: str = "quick",
    require: str = "stable",
    strict: bool = False,
    batch: str = "require",
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
        As in `verify`: by default, cases beyond input of models are left out.
    batch : str
        ``require``, or ``warn``: see `verify`.
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
    require_subject(subject)
    spec = spec_of(subject)
    settings = CampaignSettings(cases, seed, level, require, strict, batch)
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
    with SubjectProcess(
        target, strict=settings.strict, start_seconds=start_seconds, **options
    ) as process:
        spec = process.spec
        workers = None if executor is None else (executor, RemoteSubject.of(spec, start_seconds))
        return _run(process, spec, settings, progress, workers)


class Criteria(NamedTuple):
    """The criteria of a campaign, which are the same for all its parts."""

    level: str
    require: str
    also: frozenset[str]
    outputs: tuple[str, ...]
    domain: Domain
    strict: bool


class Part(NamedTuple):
    """Some of the cases of a type that a seed draws."""

    dtype: str
    seed: int
    start: int
    stop: int


class Counted(NamedTuple):
    """A measured result, and the numbers of compared, computed and wrong elements."""

    result: CaseResult
    elements: int
    answers: int
    wrong: int


class Outcome(NamedTuple):
    """The counts of one case; `run` is None without failures."""

    left_out: bool = False
    counted: tuple[Counted, ...] = ()
    deaths: int = 0
    called: float = 0.0
    worked: float = 0.0
    kinds: frozenset[FailureKind] = frozenset()
    run: CaseRun | None = None


Workers = tuple[Executor, RemoteSubject]


def _run(
    runner: Runner,
    spec: SubjectSpec,
    settings: CampaignSettings,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Campaign:
    """Try a call, then judge part by part, and sum up the outcomes."""
    settings.check()
    start, subject, tell = time.perf_counter(), runner.subject, progress or (lambda *_: None)
    first, criteria, deaths = _prepare(runner, settings)
    sizes = {name: len(some) for name, some in first.items()}
    parts = _parts(sizes, settings.cases, settings.seed, SEEDS[settings.level])
    places = [(dtype, output) for dtype in subject.dtypes for output in criteria.outputs]
    tally = _Tally(settings, places, deaths)
    tell(0, settings.cases, "waiting for workers" if workers else "")
    for part, outcomes in _outcomes(runner, criteria, parts, workers):
        for outcome in outcomes:
            tally.add(part, outcome)
        tell(tally.cases + tally.left_out, settings.cases, tally.words)
        if tally.deaths >= MAX_DEATHS:
            break
    return Campaign(
        subject.name,
        settings.level,
        settings.require,
        settings.seed,
        settings.cases,
        tally.cases,
        tally.failed,
        tally.left_out,
        settings.cases - tally.cases - tally.left_out,
        tally.counts["elements"],
        tally.counts["answers"],
        tally.counts["wrong"],
        tally.judgements(),
        _findings(subject, criteria, tally.kept, tally.failures, spec, settings.batch),
        time.perf_counter() - start,
        tally.worked,
        tally.called,
        describe("date", "python", "numpy", "machine"),
        operation=subject.operation,
    )


def _prepare(
    runner: Runner, settings: CampaignSettings
) -> tuple[dict[str, list[Case]], Criteria, int]:
    """Try a call; return the first cases by type, the criteria, and how often a process ended."""
    subject = runner.subject
    if subject.recipe:
        raise ValueError(
            f"{subject.name} claims the recipe {subject.recipe!r}, which random cases do not "
            "show: judge it by 'truenorm verify', or by truenorm.verify.verify in Python, and "
            "leave recipe out of the subject of a campaign"
        )
    criteria = Criteria(
        settings.level,
        settings.require,
        frozenset(subject.also),
        subject.outputs,
        subject.required_domain(strict=settings.strict),
        settings.strict,
    )
    first = {
        dtype: cases_of(subject.operation, criteria, dtype, settings.seed)
        for dtype in subject.dtypes
    }
    suite = [case for some in first.values() for case in some]
    deaths = sum(each.deaths for each in try_a_call(runner, suite))
    if subject.command is not None:
        outputs = outputs_of(subject, [runner.run(suite[0], Call())])
        criteria = criteria._replace(outputs=outputs)
    return first, criteria, deaths


class _Tally:
    """The counts of a campaign so far, and the first few outcomes of each kind of failure."""

    def __init__(
        self, settings: CampaignSettings, places: Iterable[tuple[str, str]], deaths: int
    ) -> None:
        self._settings, self.deaths = settings, deaths
        self.cases = self.failed = self.left_out = 0
        self.called = self.worked = 0.0
        self.counts, self.failures = Counter[str](), Counter[FailureKind]()
        self.kept: list[tuple[Part, Outcome]] = []
        self._counts = {place: Counter[str]() for place in places}
        self._worst: dict[tuple[str, str], dict[str, CaseResult]] = {
            place: {} for place in self._counts
        }

    def add(self, part: Part, outcome: Outcome) -> None:
        """Add the outcome of one case."""
        self.cases += not outcome.left_out
        self.left_out += outcome.left_out
        self.failed += any(self._settings.fails(guard) for guard, _, _ in outcome.kinds)
        self.deaths += outcome.deaths
        self.called += outcome.called
        self.worked += outcome.worked
        for result, elements, answers, wrong in outcome.counted:
            place = result.dtype, result.output
            for count in (self.counts, self._counts[place]):
                count.update(cases=1, elements=elements, answers=answers, wrong=wrong)
            largest = self._worst[place].get(result.kind, result)
            self._worst[place][result.kind] = _worse(largest, result)
        if any(self.failures[kind] < KEPT_FAILURES for kind in outcome.kinds):
            self.kept.append((part, outcome))
        self.failures.update(outcome.kinds)

    @property
    def words(self) -> str:
        """The counts for a line of progress."""
        return f"{self.counts['elements']:,} elements, {self.counts['wrong']:,} wrong"

    def judgements(self) -> tuple[Judgement, ...]:
        """Return the judgement of each output that has results."""
        places = [place for place, worst in self._worst.items() if worst]
        return tuple(_judgement(self._worst[each], self._counts[each]) for each in places)


def cases_of(operation: Operation, criteria: Criteria, dtype: str, seed: int) -> list[Case]:
    """Return the cases of a type and a seed."""
    suite = seeded_cases(operation, dtype, criteria.level, seed)
    return [each for each in suite if each.needs <= criteria.also]


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


def _outcomes(
    runner: Runner, criteria: Criteria, parts: Iterable[Part], workers: Workers | None
) -> Iterator[tuple[Part, list[Outcome]]]:
    """Yield each part with its outcomes."""
    if workers is not None:
        executor, remote = workers
        yield from map_in_order(executor, partial(run_part, remote, criteria), parts)
        return
    for part in parts:
        if isinstance(runner, SubjectProcess):
            runner.reset_deaths()
        yield part, _judge_part(runner, criteria, part)


def run_part(remote: RemoteSubject, criteria: Criteria, part: Part) -> tuple[Part, list[Outcome]]:
    """Judge a part of a campaign; this is called in a worker."""
    return part, _judge_part(process_of(remote), criteria, part)


def _judge_part(runner: Runner, criteria: Criteria, part: Part) -> list[Outcome]:
    """Run and judge the cases of a part; exact answers are not kept."""
    outcomes: list[Outcome] = []
    suite = cases_of(runner.subject.operation, criteria, part.dtype, part.seed)
    for case in suite[part.start : part.stop]:
        start = time.thread_time()  # elapsed time would include other threads
        exact, outcome = answers_to(case), Outcome(left_out=True)
        if split_by_domain([case], criteria.domain)[0]:
            outcome = _judge_case(case, run_case(runner, case, exact), criteria)
        forget([case])
        outcomes.append(outcome._replace(worked=time.thread_time() - start))
        if sum(each.deaths for each in outcomes) >= MAX_DEATHS:
            break
    return outcomes


def _judge_case(case: Case, run: CaseRun, criteria: Criteria) -> Outcome:
    """Check the records of a case, and count its elements."""
    symptoms, judged = check_case(case, run.records, criteria.outputs)
    if not criteria.strict:
        symptoms, judged = relax_sums(symptoms, judged)
    symptoms, _ = drop_unclaimed(symptoms, criteria.also)
    counted = {each.output: _measure(each, criteria.require) for each in judged}
    kinds: set[FailureKind] = {
        (each.guard, case.dtype, each.output)
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or counted[each.output].wrong
    }
    explained = {output for _, _, output in kinds}
    kinds |= {
        ("rounding", case.dtype, output)
        for output, each in counted.items()
        if each.wrong and output not in explained
    }
    return Outcome(
        counted=tuple(counted.values()),
        deaths=sum(record.deaths for record in run.records),
        called=sum(record.seconds for record in run.records),
        kinds=frozenset(kinds),
        run=run if kinds else None,
    )


def _measure(one: MeasuredResult, require: str) -> Counted:
    """Count the elements of a result, and the wrong elements."""
    exact = expected(one.case).given(one.record.results)
    off = compare_with_answers([(slice(None), exact)], one.output, one.result, require)
    if require in POWERS and not one.error.needs:  # it may be a sum whose bound was relaxed
        off = replace(off, count=int(exact.misplaced(one.output, one.result).sum()))
    rows = one.case.operation.is_rows(one.output)
    answers = off.total // one.case.repeats if rows else off.total
    return Counted(case_result(one), off.total, answers, off.count)


def _judgement(worst: Mapping[str, CaseResult], counts: Counter[str]) -> Judgement:
    """Return the judgement of an output, given its worst result of each kind of case."""
    results = list(worst.values())
    case = max(results, key=lambda each: each.badness)
    return Judgement(
        case.dtype,
        case.output,
        grade_output(results, tuple(GUARDS)),
        counts["cases"],
        counts["elements"],
        counts["answers"],
        counts["wrong"],
        max(each.ulp for each in results),
        max(each.natural for each in results),
        case.case,
    )


def _worse(one: CaseResult, other: CaseResult) -> CaseResult:
    """Return the larger errors of two results, with the name of the worse case."""
    worst = max(one, other, key=lambda each: each.badness)
    return replace(
        worst,
        ulp=max(one.ulp, other.ulp),
        natural=max(one.natural, other.natural),
        correct=one.correct and other.correct,
    )


def _findings(
    subject: Subject,
    criteria: Criteria,
    kept: Sequence[tuple[Part, Outcome]],
    failures: Mapping[FailureKind, int],
    spec: SubjectSpec,
    batch: str,
) -> tuple[Finding, ...]:
    """Grade the failed cases that were kept."""
    suite, records = [], []
    for part, outcome in kept:
        assert outcome.run is not None
        cases = cases_of(subject.operation, criteria, part.dtype, part.seed)
        (failed,) = (each for each in cases if each.name == outcome.run.case)
        case = replace(failed, needs=criteria.also)  # all claims
        remember(case, outcome.run.exact)
        suite.append(case)
        records += outcome.run.records
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
        batch=batch,
    )
    forget(suite)
    findings = []
    for each in report.findings:
        others = failures[each.guard, each.dtype, each.output] - 1
        findings.append(replace(each, also_in=max(each.also_in, others)))
    return tuple(findings)
