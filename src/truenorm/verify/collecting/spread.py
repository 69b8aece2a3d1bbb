"""Put cases to a subject by the workers of an executor; what comes back is in order all the same.

A worker is sent names, of a subject and of cases. It makes the cases, computes their exact answers
and runs the subject in a process of its own; records and answers come back, and grading is as
ever. So the report does not depend on how many workers there are, nor on who was first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from truenorm.tools.progress import Progress
from truenorm.verify.answers.expected import computed, forget, remember
from truenorm.verify.answers.question import Arrays
from truenorm.verify.answers.store import kept
from truenorm.verify.collecting.one_by_one import collect, records_of
from truenorm.verify.collecting.places import Place, process_of
from truenorm.verify.operation import Case
from truenorm.verify.operations import operation_of
from truenorm.verify.own.cases import is_own
from truenorm.verify.runs.calls import GaveUpError, Record, Runner
from truenorm.verify.runs.subject_process import DEATHS, CannotRunError, SubjectProcess
from truenorm.verify.suite import case

__all__ = ["Outcome", "Task", "answers_to", "done", "in_order", "outcome_of", "spread"]

AT_ONCE = 2**13
"""Elements of x in the cases of a task: their exact answers take a second at most."""
AHEAD = 4096
"""Tasks that wait for workers: each is a few names, and no cluster has so many workers."""
Sent = TypeVar("Sent")
Found = TypeVar("Found")


class Task(NamedTuple):
    """Some cases of a subject, by name."""

    place: Place
    names: tuple[str, ...]


class Outcome(NamedTuple):
    """What came of a case: all that grading asks for."""

    case: str
    records: list[Record]
    exact: Arrays


def done(task: Task) -> list[Outcome]:
    """Put the cases of a task to the subject: this is what a worker runs."""
    process = process_of(task.place)
    operation = operation_of(process.description["operation"])
    found = []
    for name in task.names:
        one = case(name, operation=operation)
        found.append(outcome_of(process, one, answers_to(one)))
        forget([one])
        if process.deaths >= DEATHS:
            break
    return found


def answers_to(case: Case) -> Arrays:
    """Return the exact answers to a case as they are sent, and keep them here until forgotten."""
    exact = kept(case, computed)
    remember(case, exact)
    return exact


def outcome_of(runner: Runner, case: Case, exact: Arrays) -> Outcome:
    """Put a case, whose answers are known, to a subject, as far as that lasts."""
    records: list[Record] = []
    with suppress(GaveUpError):
        records += records_of(runner, case)
    return Outcome(case.name, records, exact)


def spread(
    executor: Executor,
    place: Place,
    process: SubjectProcess,
    suite: Sequence[Case],
    progress: Progress | None = None,
) -> list[Record]:
    """Return the records that `collect` does, in its order.

    Cases of one's own have no name that a worker could make them by: they go to `process`.
    """
    named = {each.name: each for each in suite if not is_own(each)}
    own = [each for each in suite if is_own(each)]
    records: list[Record] = []
    tell = progress or (lambda *_: None)
    tell(0, len(named), "waiting for workers")
    for number, outcome in enumerate(
        one for some in in_order(executor, done, _tasks(place, named.values())) for one in some
    ):
        tell(number, len(named), outcome.case)
        remember(named[outcome.case], outcome.exact)
        for record in outcome.records:
            records.append(record)
            process.deaths += record.deaths
            if process.deaths >= DEATHS:  # what workers have done beyond is as if it were not
                return records
    return records + (collect(process, own, progress) if own else [])


def _tasks(place: Place, suite: Iterable[Case]) -> Iterator[Task]:
    """Yield the cases, some at a time."""
    some: list[str] = []
    size = 0
    for each in suite:
        some.append(each.name)
        size += int(np.prod(each.shape)) // each.repeats
        if size >= AT_ONCE:
            yield Task(place, tuple(some))
            some, size = [], 0
    if some:
        yield Task(place, tuple(some))


def in_order(
    executor: Executor, work: Callable[[Sent], Found], tasks: Iterable[Sent]
) -> Iterator[Found]:
    """Yield what workers make of tasks, the first one first; nothing is kept that was yielded."""
    left = iter(tasks)
    waiting: deque[Future[Found]] = deque()
    try:
        waiting.extend(executor.submit(work, task) for task in islice(left, AHEAD))
        while waiting:
            yield waiting[0].result()
            waiting.popleft()
            waiting.extend(executor.submit(work, task) for task in islice(left, 1))
    except BrokenExecutor as broken:
        raise CannotRunError(
            f"a worker of {type(executor).__name__} has ended: {broken}. It was not ended by the "
            "subject, which has a process of its own; lack of memory may have done it"
        ) from broken
    finally:
        for future in waiting:
            future.cancel()
