"""Judge some cases, and count: this is done where the cases are run, and little is sent back."""

import time
from collections import Counter
from typing import NamedTuple

from truenorm.verify.answers.expected import expected, forget
from truenorm.verify.bounds.held import held_against
from truenorm.verify.campaigns.tally import Count, Key, Part, Tally
from truenorm.verify.collecting.places import Place, process_of
from truenorm.verify.collecting.spread import Outcome, answers_to, outcome_of
from truenorm.verify.domain import Domain
from truenorm.verify.grading.beyond import parted
from truenorm.verify.grading.findings import claimed_alone
from truenorm.verify.grading.guards import GUARDS, Judged, judge_case
from truenorm.verify.grading.marks import result_of
from truenorm.verify.grading.report import ACCURACY
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import operation_of
from truenorm.verify.runs.calls import Runner
from truenorm.verify.runs.subject_process import DEATHS
from truenorm.verify.subject import Subject
from truenorm.verify.suite import drawn

__all__ = ["Asked", "Task", "cases_of", "counted", "tallied"]


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
    return tallied(process, operation_of(process.description["operation"]), task.asked, task.part)


def cases_of(operation: Operation, asked: Asked, dtype: str, seed: int) -> list[Case]:
    """Return the cases of a type and a seed."""
    also = set(asked.also)
    return [each for each in drawn(operation, dtype, asked.level, seed) if each.needs <= also]


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
