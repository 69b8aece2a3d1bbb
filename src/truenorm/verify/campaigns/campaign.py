"""Draw many cases, have them judged part by part, and add up what came of it."""

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import NamedTuple

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import forget, remember
from truenorm.verify.bounds.held import GRADES
from truenorm.verify.campaigns.counting import Asked, Task, cases_of, counted, tallied
from truenorm.verify.campaigns.summary import Campaign, Judgement
from truenorm.verify.campaigns.tally import Count, Part, Tally
from truenorm.verify.cases.ordinary import SEEDS
from truenorm.verify.collecting.one_by_one import outputs_of
from truenorm.verify.collecting.places import Place, origin_of
from truenorm.verify.collecting.spread import in_order
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.guards import GUARDS
from truenorm.verify.grading.marks import grade_of
from truenorm.verify.grading.report import Finding
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.runs.calls import Call, Runner
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.runs.subject_process import DEATHS, SubjectProcess
from truenorm.verify.runs.trial import try_a_call
from truenorm.verify.subject import Subject
from truenorm.verify.suite import LEVELS

__all__ = ["Drawing", "campaign", "ran"]

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
        drawn = cases_of(subject.operation, asked, part.dtype, part.seed)
        (shown,) = (each for each in drawn if each.name == outcome.case)
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
