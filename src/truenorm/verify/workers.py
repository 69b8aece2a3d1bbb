"""Distribute the cases of a subject over the workers of an executor.

A worker gets the names of a subject and of cases. It starts the process of the subject once for
each run, and returns records and exact answers.
"""

import atexit
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
from truenorm.verify.collecting import collect, records_of
from truenorm.verify.operation import Case
from truenorm.verify.oracle import (
    Arrays,
    compute_exact,
    forget,
    load_or_compute,
    remember,
)
from truenorm.verify.running.process import MAX_DEATHS, START_SECONDS, SubjectProcess
from truenorm.verify.running.records import (
    CannotRunError,
    GaveUpError,
    Record,
    Runner,
)
from truenorm.verify.subject import SubjectSpec
from truenorm.verify.suite import case as case_named
from truenorm.verify.user_cases import (
    is_user_case,
)

TASK_ELEMENTS = 2**13
"""Elements of x in the cases of a task: their exact answers take a second at most."""
PENDING_TASKS = 4096
"""Submitted tasks: each is a few names, and no cluster has so many workers."""
Item = TypeVar("Item")
Result = TypeVar("Result")


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
