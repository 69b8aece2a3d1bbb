"""What is kept of cases once they are judged: its size does not depend on how many they are."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.bounds import GRADES, held_against
from truenorm.verify.cases.families import SEEDS
from truenorm.verify.collect import (
    Outcome,
    Place,
    answers_to,
    in_order,
    origin_of,
    outcome_of,
    outputs_of,
    process_of,
)
from truenorm.verify.grading.checks import GUARDS, Judged, judge_case
from truenorm.verify.grading.findings import claimed_alone
from truenorm.verify.grading.grades import grade, grade_of, parted, result_of
from truenorm.verify.grading.report import ACCURACY, CaseResult, Finding
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.operation import Case, Domain, Operation
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import expected, forget, remember
from truenorm.verify.running.process import DEATHS, SubjectProcess
from truenorm.verify.running.records import Call, Runner
from truenorm.verify.running.runners import runner_for, try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import LEVELS, seeded_cases

SHOWN = 4
"""Cases that are kept of each kind of failure, for findings and their causes."""
Key = tuple[str, str, str]
"""Guard, type and output."""


class Part(NamedTuple):
    """Some of the cases of a type that a seed draws."""

    dtype: str
    seed: int
    start: int
    stop: int


@dataclass
class Count:
    """Of one output in one type; the errors by the kind of case, the largest of each."""

    cases: int = 0
    elements: int = 0
    answers: int = 0
    wrong: int = 0
    worst: dict[str, CaseResult] = field(default_factory=dict)

    def add(self, other: "Count") -> None:
        """Add what was counted elsewhere, later in the order of cases."""
        self.cases += other.cases
        self.elements += other.elements
        self.answers += other.answers
        self.wrong += other.wrong
        for kind, result in other.worst.items():
            self.worst[kind] = _worse(self.worst.get(kind, result), result)


def _worse(one: CaseResult, other: CaseResult) -> CaseResult:
    """Return what holds of both, with the name of the case that is worse."""
    shown = max(one, other, key=lambda each: (each.needs, each.natural, each.ulp))
    return replace(
        shown,
        ulp=max(one.ulp, other.ulp),
        natural=max(one.natural, other.natural),
        correct=one.correct and other.correct,
    )


@dataclass
class Tally:
    """Of some cases.

    Attributes
    ----------
    cases, failed, left_out : int
        Those that were judged; of them, those in which something is wrong; those beyond the
        domain.
    deaths : int
        How often the subject has died.
    worked, called : float
        Processor time, and time in calls of the subject.
    counts : dict
        By type and output.
    seen : Counter
        By kind of failure, the cases that show it.
    shown : list
        The first few of those, and the part that each is of.
    """

    cases: int = 0
    failed: int = 0
    left_out: int = 0
    deaths: int = 0
    worked: float = 0.0
    called: float = 0.0
    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    seen: Counter[Key] = field(default_factory=Counter)
    shown: list[tuple[Part, Outcome, frozenset[Key]]] = field(default_factory=list)

    def whole(self) -> Count:
        """Return the sum over all types and outputs."""
        found = Count()
        for count in self.counts.values():
            found.add(count)
        return found

    def add(self, other: "Tally") -> None:
        """Add what was counted elsewhere, later in the order of cases."""
        self.cases += other.cases
        self.failed += other.failed
        self.left_out += other.left_out
        self.deaths += other.deaths
        self.worked += other.worked
        self.called += other.called
        for place, count in other.counts.items():
            self.counts.setdefault(place, Count()).add(count)
        kept: Counter[Key] = Counter(key for *_, keys in self.shown for key in keys)
        for each in other.shown:
            if any(kept[key] < SHOWN for key in each[2]):
                self.shown.append(each)
                kept.update(each[2])
        self.seen.update(other.seen)


class Asked(NamedTuple):
    """What a campaign is about: for every part of it the same."""

    level: str
    require: str
    also: tuple[str, ...]
    outputs: tuple[str, ...]
    domain: Domain

    @classmethod
    def of(cls, subject: Subject, level: str, require: str) -> "Asked":
        """Return what is asked of a subject; refuse a recipe, which is told by all its cases."""
        if subject.recipe:
            raise ValueError(
                f"{subject.name} claims the recipe {subject.recipe!r}, which cases that are drawn "
                "do not tell: judge that without --cases, by truenorm.verify.verify in Python, "
                "and leave recipe out of a subject for this"
            )
        return cls(level, require, tuple(subject.also), subject.outputs, subject.domain)


class Task(NamedTuple):
    """A part of a campaign, for a worker."""

    place: Place
    asked: Asked
    part: Part


def counted(task: Task) -> Tally:
    """Judge a part of a campaign: this is what a worker runs."""
    process = process_of(task.place)
    return tallied(
        process, parse_operation(process.description["operation"]), task.asked, task.part
    )


def cases_of(operation: Operation, asked: Asked, dtype: str, seed: int) -> list[Case]:
    """Return the cases of a type and a seed."""
    also = set(asked.also)
    return [
        each for each in seeded_cases(operation, dtype, asked.level, seed) if each.needs <= also
    ]


def tallied(runner: Runner, operation: Operation, asked: Asked, part: Part) -> Tally:
    """Put the cases of a part to a subject, judge and count; answers are not kept."""
    found = Tally()
    start = time.thread_time()  # by the clock, it would count whoever else is at work
    suite = cases_of(operation, asked, part.dtype, part.seed)
    for case in suite[part.start : part.stop]:
        exact = answers_to(case)
        if not parted([case], asked.domain)[0]:
            found.left_out += 1
        else:
            _count(found, case, outcome_of(runner, case, exact), asked, part)
        forget([case])
        if found.deaths >= DEATHS:
            break
    found.worked = time.thread_time() - start
    return found


def _count(found: Tally, case: Case, outcome: Outcome, asked: Asked, part: Part) -> None:
    seen, judged = judge_case(case, outcome.records, asked.outputs)
    symptoms, _ = claimed_alone(seen, asked.also)
    wrong = {one.output: _count_one(found, one, asked.require) for one in judged}
    keys: set[Key] = {
        (each.guard, case.dtype, each.output)
        for each in symptoms
        if GUARDS[each.guard] != ACCURACY or wrong[each.output]
    }
    told = {output for _, _, output in keys}
    keys |= {("rounding", case.dtype, each) for each in wrong if wrong[each] and each not in told}
    found.cases += 1
    found.deaths += sum(record.deaths for record in outcome.records)
    found.called += sum(record.seconds for record in outcome.records)
    if keys:
        more = Tally(failed=1, seen=Counter(keys), shown=[(part, outcome, frozenset(keys))])
        found.add(more)


def _count_one(found: Tally, one: Judged, require: str) -> int:
    """Count the elements of a result; return how many are wrong."""
    off = held_against([(slice(None), expected(one.case))], one.output, one.result, require)
    rows = one.case.operation.is_rows(one.output)
    answers = off.of // one.case.repeats if rows else off.of
    more = Count(1, off.of, answers, off.count, {one.case.kind: result_of(one)})
    found.counts.setdefault((one.case.dtype, one.output), Count()).add(more)
    return off.count


@dataclass(frozen=True)
class Judgement:
    """What a campaign says of one output in one type.

    `elements` were compared with exact answers, of which `answers` were computed: rows that a case
    repeats have one. `wrong` is how many of these elements are below the required grade.
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
    """What came of many cases that were drawn.

    Attributes
    ----------
    subject, level, require : str
    seed : int
        The first one that cases were drawn with.
    asked, cases : int
        How many cases were asked for, and how many were judged.
    failed : int
        Cases in which something is wrong: an element, or what the subject did.
    left_out, not_run : int
        Cases beyond the domain of the subject, and those that were given up.
    elements, answers, wrong : int
        Sums over all results.
    results : tuple of Judgement
    findings : tuple of Finding
        As in a `Report`; those of accuracy, and their causes, from the first cases that show each.
    seconds : float
        From the first case to the last.
    worked, called : float
        Processor time of judging, and time in calls of the subject, added up over all workers.
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
        """Whether all cases were judged, and nothing is wrong in any."""
        return bool(self.results) and not self.failed and not self.not_run


AT_ONCE = 16
"""Cases of a part: their exact answers take a second or two."""


class Drawing(NamedTuple):
    """What is drawn, and what is asked of it: see `campaign`."""

    cases: int
    seed: int
    level: str
    require: str

    def check(self) -> None:
        """Refuse what cannot be drawn, or counted."""
        for given, what in ((self.cases, "cases"), (self.seed, "seed")):
            if given < 1:
                raise ValueError(f"{what} is {given}; give a number from 1 on")
        if self.require not in GRADES:
            these = ", ".join(GRADES)
            raise ValueError(f"require is {self.require!r}; of a campaign it is one of {these}")
        if self.level not in LEVELS:
            raise ValueError(f"level is {self.level!r}; it is one of {', '.join(LEVELS)}")


def campaign(
    subject: Subject,
    cases: int,
    *,
    seed: int = 1,
    level: str = "quick",
    require: str = "stable",
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Campaign:
    """Judge a layer normalization on many cases that are drawn from the families.

    Of each case numbers are kept, and of the first few that fail what came back, so that it does
    not matter for memory how many there are. But for times, what is returned is the same with and
    without an executor.

    Parameters
    ----------
    subject : Subject
    cases : int
        How many; each type has an equal share.
    seed : int
        From 1 on: cases are drawn with this one, then with the next, until there are enough.
    level : str
        ``quick`` or ``full``, which has more widths and longer rows.
    require : str
        An element that is not so good is wrong: conditional, stable, faithful or correct.
    progress : callable, optional
        Called with the number of cases done, the number of all, and how many elements that are.
    executor : concurrent.futures.Executor, optional
        Whose workers judge, and load the subject by its name: it is at the top level of a file.

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
    >>> found = tv.campaign(tv.Subject(forward), cases=3, seed=7, require="correct")
    >>> found.passed, found.cases, found.wrong
    (True, 3, 0)
    """
    origin = origin_of(subject)
    drawing = Drawing(cases, seed, level, require)
    if executor is None:
        return ran(subject, runner_for(subject), origin, drawing, progress=progress)
    place = Place.of(origin)
    with place.process() as process:
        return ran(subject, process, origin, drawing, progress=progress, crew=(executor, place))


def ran(
    subject: Subject,
    runner: Runner,
    origin: Origin,
    drawing: Drawing,
    *,
    progress: Progress | None = None,
    crew: tuple[Executor, Place] | None = None,
) -> Campaign:
    """Try a call, then judge part by part, and sum up; with a `crew`, by its workers."""
    drawing.check()
    cases, seed, level, require = drawing
    start = time.perf_counter()
    asked = Asked.of(subject, level, require)
    first = {dtype: cases_of(subject.operation, asked, dtype, seed) for dtype in subject.dtypes}
    suite = [case for some in first.values() for case in some]
    total = Tally(deaths=sum(each.deaths for each in try_a_call(subject, runner, suite)))
    if not origin.callable:
        asked = asked._replace(outputs=outputs_of(subject, origin, [runner.run(suite[0], Call())]))
    tell = progress or (lambda *_: None)
    parts = _parts({dtype: len(some) for dtype, some in first.items()}, cases, seed, SEEDS[level])
    tell(0, cases, "waiting for workers" if crew else "")
    for tally in _tallies(subject, runner, asked, parts, crew):
        total.add(tally)
        whole = total.whole()
        said = f"{whole.elements:,} elements, {whole.wrong:,} wrong"
        tell(total.cases + total.left_out, cases, said)
        if total.deaths >= DEATHS:
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
            for output in asked.outputs
            if (dtype, output) in total.counts
        ),
        _findings(subject, asked, total, origin),
        time.perf_counter() - start,
        total.worked,
        total.called,
        describe("date", "python", "numpy", "machine"),
        operation=subject.operation,
    )


def _parts(sizes: Mapping[str, int], cases: int, seed: int, step: int) -> Iterator[Part]:
    """Yield parts until there are enough cases; `sizes` are how many a seed draws of each type."""
    if not all(sizes.values()):
        raise ValueError("this operation draws no cases: with every seed it has the same ones")
    share, more = divmod(cases, len(sizes))
    left = {dtype: share + (place < more) for place, dtype in enumerate(sizes)}
    while any(left.values()):
        for dtype, size in sizes.items():
            count = min(size, left[dtype])
            for start in range(0, count, AT_ONCE):
                yield Part(dtype, seed, start, min(start + AT_ONCE, count))
            left[dtype] -= count
        seed += step


def _tallies(
    subject: Subject,
    runner: Runner,
    asked: Asked,
    parts: Iterator[Part],
    crew: tuple[Executor, Place] | None,
) -> Iterator[Tally]:
    """Yield what came of each part, in order."""
    if crew is not None:
        executor, place = crew
        yield from in_order(executor, counted, (Task(place, asked, part) for part in parts))
        return
    for part in parts:
        if isinstance(runner, SubjectProcess):
            runner.forgive()
        yield tallied(runner, subject.operation, asked, part)


def _judgement(dtype: str, output: str, count: Count) -> Judgement:
    results = list(count.worst.values())
    worst = max(results, key=lambda each: (each.needs, each.natural, each.ulp))
    return Judgement(
        dtype,
        output,
        grade_of(results, tuple(GUARDS)),
        count.cases,
        count.elements,
        count.answers,
        count.wrong,
        max(each.ulp for each in results),
        max(each.natural for each in results),
        worst.case,
    )


def _findings(subject: Subject, asked: Asked, total: Tally, origin: Origin) -> tuple[Finding, ...]:
    """Grade the cases that were kept because they failed, as if there were no others."""
    suite, records = [], []
    for part, outcome, _ in total.shown:
        suite = cases_of(subject.operation, asked, part.dtype, part.seed)
        (shown,) = (each for each in suite if each.name == outcome.case)
        case = replace(shown, needs=frozenset(asked.also))  # all that was claimed
        remember(case, outcome.exact)
        suite.append(case)
        records += outcome.records
    if not suite:
        return ()
    report = grade(
        subject.name,
        suite,
        records,
        outputs=asked.outputs,
        require=asked.require,
        level=asked.level,
        origin=origin,
    )
    forget(suite)
    return tuple(
        replace(
            each, also_in=max(each.also_in, total.seen[each.guard, each.dtype, each.output] - 1)
        )
        for each in report.findings
    )
