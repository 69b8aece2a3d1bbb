"""Where a subject is found: a worker loads it by its name, since functions are not sent to it."""

import atexit
import sys
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from truenorm.tools.progress import Progress
from truenorm.verify.grading.checks import large_call
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.grading.user_cases import own_records
from truenorm.verify.operation import Case
from truenorm.verify.operations import parse_operation
from truenorm.verify.oracle import (
    Arrays,
    compute_exact,
    expected,
    forget,
    load_or_compute,
    remember,
)
from truenorm.verify.running.process import DEATHS, START_SECONDS, CannotRunError, SubjectProcess
from truenorm.verify.running.records import GaveUpError, Record, Runner, calls_of
from truenorm.verify.subject import Subject
from truenorm.verify.suite import case as case_named
from truenorm.verify.user_cases import is_user_case


class Place(NamedTuple):
    """What a subject is loaded by, on any machine that has its file.

    Attributes
    ----------
    target : str
        ``file.py:name`` with the whole path, or ``torch:package.module.function``.
    operation : str
        What it is taken for, if that is not what it says itself.
    start_seconds : float
        How long it may take to load.
    run : str
        Of which run: workers outlive it, and files change.
    """

    target: str
    operation: str = ""
    start_seconds: float = START_SECONDS
    run: str = ""

    @classmethod
    def of(cls, origin: Origin, start_seconds: float = START_SECONDS) -> "Place":
        """Return the place of an origin, for a run that begins; ValueError if it has no file."""
        if not origin.file:
            raise ValueError(
                "workers load a subject by its name, and this one has none in any file: put it at "
                "the top level of one, as subject = truenorm.verify.Subject(...)"
            )
        target = f"{origin.file}:{origin.name}"
        return cls(target, origin.operation, start_seconds, uuid.uuid4().hex)

    def process(self) -> SubjectProcess:
        """Start the subject in a process of its own."""
        return SubjectProcess(
            self.target, operation=self.operation, start_seconds=self.start_seconds
        )


def origin_of(subject: Subject) -> Origin:
    """Find the name and the file of a subject in the modules that are loaded.

    The module of its function comes first, since others may import it from there; the script that
    runs comes last: it may have a name for it only as it runs.
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
                    return Origin.of(subject, file, name)
    return Origin.of(subject)


class _Mine(threading.local):
    """The process that a thread of a worker has: calls of two threads must not mix."""

    place = Place("")
    process: SubjectProcess | None = None


_mine = _Mine()
_running: set[SubjectProcess] = set()


def process_of(place: Place) -> SubjectProcess:
    """Return the process of a subject in a worker: it is started once and kept for the run."""
    if _mine.process is None or _mine.place != place:
        if _mine.process is not None:
            _end(_mine.process)
            _mine.process = None
        _mine.place, _mine.process = place, place.process()
        _running.add(_mine.process)
    _mine.process.forgive()
    return _mine.process


def _end(process: SubjectProcess) -> None:
    process.__exit__()
    _running.discard(process)


@atexit.register
def _end_all() -> None:
    for process in list(_running):
        _end(process)


def collect(
    runner: Runner, suite: Sequence[Case], progress: Progress | None = None
) -> list[Record]:
    """Put each case to a subject in every way that belongs to it, as far as it lasts."""
    steps = 2 * len(suite)
    tell = progress or (lambda *_: None)
    # First: a subject may leave the processor in a state in which subnormal numbers are zero.
    for done, case in enumerate(suite):
        if not is_user_case(case):
            tell(done, steps, f"exact answers: {case.name}")
            expected(case)
    records: list[Record] = []
    for done, case in enumerate(suite, start=len(suite)):
        tell(done, steps, case.name)
        try:
            if is_user_case(case):
                records += own_records(runner, case, partial(_told, tell, done, steps, case.name))
            else:
                records += records_of(runner, case)
        except GaveUpError:
            return records
    tell(steps, steps, "grading")
    return records


def _told(tell: Progress, done: int, steps: int, name: str, what: str) -> None:
    """Say how far a case is that takes long by itself."""
    tell(done, steps, f"{name}: {what}")


def records_of(runner: Runner, case: Case) -> Iterator[Record]:
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


def outputs_of(subject: Subject, origin: Origin, records: Sequence[Record]) -> tuple[str, ...]:
    """Return the results that a subject has; of a command they are seen from what it writes."""
    if origin.callable:
        return subject.outputs
    written = {output for record in records for output in record.results}
    return tuple(output for output in subject.outputs if output in written) or subject.outputs


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
    operation = parse_operation(process.description["operation"])
    found = []
    for name in task.names:
        one = case_named(name, operation=operation)
        found.append(outcome_of(process, one, answers_to(one)))
        forget([one])
        if process.deaths >= DEATHS:
            break
    return found


def answers_to(case: Case) -> Arrays:
    """Return the exact answers to a case as they are sent, and keep them here until forgotten."""
    exact = load_or_compute(case, compute_exact)
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
    named = {each.name: each for each in suite if not is_user_case(each)}
    own = [each for each in suite if is_user_case(each)]
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
