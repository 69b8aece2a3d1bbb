"""Run somebody's tests, once as they are and once with each kernel in the place of theirs."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.audit.arguments import signature_of
from truenorm.verify.audit.planted import Planted, planted_kernels, rounding_of
from truenorm.verify.audit.report import Audit, Outcome
from truenorm.verify.audit.seen import Seen, read
from truenorm.verify.audit.task import Task, place_of
from truenorm.verify.audit.witness import told_apart, witness_for
from truenorm.verify.runs.program import Program
from truenorm.verify.runs.subject_process import CannotRunError

__all__ = ["SECONDS", "audit_tests"]

SECONDS = 300.0
SHOWN = 25
"""Lines of what pytest printed last, where it could not run."""
NOT_RUN = {
    4: "pytest finds no such tests, or has no such option",
    5: "pytest has no tests to run: none were found, or selected",
}
"""By its exit code."""


@dataclass(frozen=True)
class Run:
    """How a run of the tests ended: a failure in words, if any, and what it showed.

    `not_run` says why the tests were not run, or not to their end, if that is the failure.
    """

    failure: str
    not_run: str
    seen: Seen
    printed: str
    seconds: float

    @property
    def tail(self) -> str:
        """The last lines that were printed, to go on after a sentence."""
        return "\n".join([":", *self.printed.splitlines()[-SHOWN:]]) if self.printed else ""


def audit_tests(
    tests: Sequence[str],
    task: Task,
    *,
    seconds: float = SECONDS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Audit:
    """Tell which wrong kernels some tests let pass.

    Parameters
    ----------
    tests : sequence of str
        What pytest is given: files, and options.
    task : Task
        Whose place the kernels take, and how it is called.
    seconds : float
        How long one run of the tests may take.
    jobs : int
        How many run at once.
    progress : callable, optional
        Is told how many runs are done.

    Raises
    ------
    CannotRunError
        If the tests fail as they are, or with a kernel that has no fault.
    """
    _check(task)
    tell = progress or (lambda *_: None)
    planted = planted_kernels(task.norm, task.recipe)
    with tempfile.TemporaryDirectory(prefix="truenorm-audit-") as folder:
        session = _Session(tests, Path(folder), seconds)
        tell(0, len(planted) + 2, "your tests as they are")
        alone = session.run(None)
        if alone.failure:
            why = alone.not_run or f"the tests fail as they are ({alone.failure})"
            raise CannotRunError(f"{why}{alone.tail}")
        tell(1, len(planted) + 2, "a right kernel in the place of yours")
        control = session.run(task)
        _check_control(task, control)
        seen = control.seen
        chosen, left_out = told_apart(task, planted, seen)
        found: list[Outcome] = []
        with closing(session.all(task, chosen, jobs)) as runs:
            for each, run in runs:
                found.append(_outcome(each, run))
                tell(2 + len(found) + len(left_out), len(planted) + 2, each.name)
    order = {each.name: place for place, each in enumerate(planted)}
    tell(len(planted) + 2, len(planted) + 2, "inputs that show what passed")
    outcomes: list[Outcome] = []
    for outcome in sorted(found, key=lambda each: order[each.name]):
        if not outcome.caught:
            kernel = replace(task, kernel=outcome.name).planted()
            witness = witness_for(kernel, seen.dtypes)
            if witness is None:
                left_out[outcome.name] = f"no input of {', '.join(seen.dtypes)} shows it"
                continue
            outcome = replace(outcome, witness=witness)
        outcomes.append(outcome)
    return Audit(
        task.replace,
        task.norm,
        tuple(tests),
        seen.calls,
        seen.backwards,
        tuple(seen.dtypes),
        tuple(outcomes),
        left_out,
        alone.seconds,
        describe("date", "python", "numpy", "machine"),
    )


def _check(task: Task) -> None:
    """Refuse what cannot be, before anything is run."""
    for place in filter(None, (task.replace, task.backward)):
        place_of(place)
    if task.signature:
        signature_of(task.signature)
    rounding_of(task.recipe)
    if find_spec("pytest") is None:
        raise CannotRunError("an audit runs pytest, which is not installed: pip install pytest")


class _Session:
    """Runs pytest on the same tests."""

    def __init__(self, tests: Sequence[str], folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._running: set[Program] = set()
        self._stopped = False
        # The user's own cache of pytest stays as it is: what fails here failed nobody.
        options = ["-x", "-q", "-o", f"cache_dir={folder / 'cache'}"]
        self._command = [sys.executable, "-m", "pytest", *tests, *options]

    def run(self, task: Task | None) -> Run:
        """Run the tests as they are, or with a kernel."""
        environment = dict(os.environ)
        seen: Callable[[], Seen] = Seen
        if task is not None:
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            environment |= replace(task, folder=str(folder)).environment()
            seen = lambda: read(folder)  # noqa: E731
        started = time.perf_counter()
        program = Program(self._command, Path.cwd(), environment)
        self._running.add(program)
        if self._stopped:
            program.stop()
        failure = program.failure(self._seconds)
        self._running.discard(program)
        taken = time.perf_counter() - started
        not_run = NOT_RUN.get(program.exit_code, "")
        if failure and taken >= self._seconds:
            not_run = f"the tests give {failure}; --seconds says how long one run may take"
        return Run(failure, not_run, seen(), program.printed, taken)

    def all(
        self, task: Task, planted: Sequence[Planted], jobs: int
    ) -> Generator[tuple[Planted, Run], None, None]:
        """Yield every kernel with its run, as they end."""
        with ThreadPoolExecutor(jobs) as pool:
            waiting: dict[Future[Run], Planted] = {
                pool.submit(self.run, replace(task, kernel=each.name)): each for each in planted
            }
            try:
                for done in as_completed(waiting):
                    yield waiting[done], done.result()
            finally:
                # Somebody may have lost patience: what still runs is not waited for.
                pool.shutdown(wait=False, cancel_futures=True)
                self._stopped = True
                for program in list(self._running):
                    program.stop()


def _check_control(task: Task, control: Run) -> None:
    """Say why nothing can be told, if a kernel without a fault does not do."""
    seen = control.seen
    if seen.raised:
        raise CannotRunError(f"{task.replace} cannot be replaced: {seen.raised.strip()}")
    if control.not_run:
        raise CannotRunError(
            f"with a right kernel in the place of {task.replace}, {control.not_run}{control.tail}"
        )
    if control.failure:
        raise CannotRunError(
            f"a right {task.norm.title} in the place of {task.replace} fails the tests "
            f"({control.failure}); is --operation what it computes, and --signature how it is "
            f"called?\n{control.tail}"
        )
    if not seen.calls + seen.backwards:
        module = place_of(task.replace)[0]
        was = "imported" if seen.imported else "not even imported"
        raise CannotRunError(
            f"the tests never call {task.replace}: {module} was {was}; give --replace the module "
            "and the name by which they find it"
        )


def _outcome(planted: Planted, run: Run) -> Outcome:
    """Return what came of a kernel; the time limit, or a crash, has been noticed, too."""
    if run.seen.raised:
        raise CannotRunError(f"the planted kernel {planted.name!r} failed:\n{run.seen.raised}")
    differences = {name: pair for name, pair in run.seen.largest.items() if pair[0] > 0}
    output = max(
        differences,
        key=lambda name: differences[name][0] / (differences[name][1] or 1.0),
        default="",
    )
    difference, size = differences.get(output, (0.0, 0.0))
    by = run.seen.failed or run.failure
    return Outcome(planted.name, planted.words, bool(run.failure), by, output, difference, size)
