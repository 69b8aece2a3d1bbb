"""What came of an audit: which wrong kernels the tests let pass, and what shows each."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.audit.planted import Kernel, Planted, planted_kernels, rounding_of
from truenorm.verify.audit.replacing import Seen, Task, place_of, read, signature_of
from truenorm.verify.judge import grade_records
from truenorm.verify.operation import Case
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.recipes import shows_recipe
from truenorm.verify.running.command import Program
from truenorm.verify.running.records import Call, CannotRunError
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject, SubjectSpec
from truenorm.verify.suite import cases


@dataclass(frozen=True)
class Witness:
    """An input of the judge that shows a wrong kernel.

    `made` is the Python that makes it, `why` what it is, `symptom` what comes out.
    """

    case: str
    made: str
    why: str
    symptom: str


@dataclass(frozen=True)
class Outcome:
    """A wrong kernel in the tests.

    Attributes
    ----------
    name, words : str
        Its name, and what is wrong with it.
    caught : bool
        Whether a test failed.
    by : str
        The first test that did, or how the run ended otherwise.
    output : str
        The result in which it differed most from the right one, in proportion; nothing if no
        call of the tests showed a difference.
    difference, size : float
        By how much it did, and the largest number of the right result in that call.
    witness : Witness, optional
        What would have caught it.
    """

    name: str
    words: str
    caught: bool
    by: str = ""
    output: str = ""
    difference: float = 0.0
    size: float = 0.0
    witness: Witness | None = None


@dataclass(frozen=True)
class Audit:
    """Somebody's tests, with wrong kernels in the place of theirs.

    Attributes
    ----------
    replaced : str
    operation : Norm
    tests : tuple of str
        What pytest was given.
    calls, gradients : int
        How often the tests called the kernel, and asked for its gradients.
    dtypes : tuple of str
        The types of x in these calls.
    outcomes : tuple of Outcome
    left_out : mapping of str to str
        Wrong kernels that say nothing of these tests, and why.
    seconds : float
        What one run of the tests takes.
    machine : mapping of str to str
    """

    replaced: str
    operation: Norm
    tests: tuple[str, ...]
    calls: int
    gradients: int
    dtypes: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, str]
    seconds: float
    machine: Mapping[str, str]

    @property
    def let_pass(self) -> tuple[Outcome, ...]:
        """The wrong kernels that no test failed."""
        return tuple(each for each in self.outcomes if not each.caught)

    @property
    def passed(self) -> bool:
        """Whether the tests caught all."""
        return not self.let_pass

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "schema": "truenorm/audit-1",
            "passed": self.passed,
            **vars(self),
            "operation": self.operation.spec,
        }


NO_GRADIENT = (
    "no gradient was asked of what --replace names; --backward names a backward pass that is a "
    "function"
)
NO_RECIPE = "any recipe is right, unless --recipe says which it is"
ELEMENTS = 2**15
"""Of the largest case that is tried: many rows, and long ones."""


def told_apart(
    task: Task, planted: Sequence[Planted], seen: Seen
) -> tuple[list[Planted], dict[str, str]]:
    """Return the kernels that say something of the tests, and why others do not."""
    chosen, left_out = [], {}
    narrow = any(map(shows_recipe, seen.dtypes))
    if not task.recipe and narrow:
        left_out["recipe, cut off"] = NO_RECIPE
    for each in planted:
        if each.narrow and not narrow:
            left_out[each.name] = f"in {', '.join(seen.dtypes)} it is not wrong"
        elif each.backward and not seen.backwards:
            left_out[each.name] = NO_GRADIENT
        elif not each.backward and not seen.calls:
            left_out[each.name] = "the tests call its backward pass alone"
        elif reason := _is_right(Kernel(task.norm, each, task.recipe), each, seen):
            left_out[each.name] = reason
        else:
            chosen.append(each)
    return chosen, left_out


def _is_right(kernel: Kernel, planted: Planted, seen: Seen) -> str:
    """Return why a kernel is the right one in every call of the tests, if it is."""
    dtype = next(filter(shows_recipe, seen.dtypes), seen.dtypes[0])
    wrong = kernel.reach(dtype, seen.arguments)
    if not wrong:
        roles = ("data", "parameter", *(("gradient",) if planted.backward else ()))
        absent = [name for name in kernel.norm.inputs_of(*roles) if name not in seen.arguments]
        return f"no call has {' or '.join(absent)} among its arguments"
    if not set(wrong) & set(seen.results):
        return f"no call has {' or '.join(wrong)} among its results"
    return ""


def witness_for(kernel: Kernel, dtypes: Sequence[str]) -> Witness | None:
    """Return an input of one of these types on which a kernel is not stable; None if none is."""
    by_bits = kernel.planted is not None and kernel.planted.by_bits
    for case in _suite(kernel.norm, dtypes):
        if by_bits and not shows_recipe(case.dtype):
            continue
        subject = Subject(
            kernel.forward,
            kernel.backward,
            dtypes=[case.dtype],
            operation=kernel.norm,
            recipe=kernel.recipe if by_bits else "",
        )
        records = [runner_for(subject).run(case, Call())]
        report = grade_records(subject, [case], records, SubjectSpec.of(subject))
        if report.findings:
            symptom = report.findings[0].symptom
            return Witness(case.name, _made(case, kernel.norm), case.why, symptom)
    return None


def _suite(norm: Norm, dtypes: Sequence[str]) -> Iterator[Case]:
    """Yield the cases that may show it, small ones first, those with numbers of no kind last."""
    for dtype in dtypes:
        suite = [each for each in cases(dtype, operation=norm) if each.x.size <= ELEMENTS]
        yield from sorted(suite, key=lambda case: (case.kind != "ordinary", case.x.size))


def _made(case: Case, norm: Norm) -> str:
    """Return the Python that makes a case."""
    plain = {"layer_norm": "", "rms_norm": ", operation=tv.RMS_NORM"}
    if OPERATIONS.get(norm.name) is norm:
        return f"tv.case({case.name!r}{plain[norm.name]})"
    options = "".join(f", {key}={value!r}" for key, value in norm.options.items())
    options = options.replace("beta='true'", "beta=True").replace("beta='false'", "beta=False")
    return f"tv.case({case.name!r}, operation=tv.norm({norm.name!r}{options}))"


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
