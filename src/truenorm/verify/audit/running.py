"""Run tests with wrong kernels in place of theirs, and report which ones no test catches."""

import math
import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress
from truenorm.verify.audit.planted import Kernel, PlantedBug
from truenorm.verify.audit.replacing import (
    AuditTask,
    Observations,
    parse_kernel_path,
    parse_signature,
)
from truenorm.verify.calls import Call
from truenorm.verify.grading.report import Finding
from truenorm.verify.judge import grade_records
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.recipes import shows_recipe
from truenorm.verify.operation import Case
from truenorm.verify.operations import LAYER_NORM
from truenorm.verify.running.command import Program
from truenorm.verify.running.records import CannotRunError
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases


@dataclass(frozen=True)
class Witness:
    """A case of the judge that exposes a wrong kernel.

    `made` is the Python expression of the case, `why` its description, `symptom` the finding.
    """

    case: str
    made: str
    why: str
    symptom: str


@dataclass(frozen=True)
class Outcome:
    """The outcome of the tests with a wrong kernel.

    `output` is the result with the largest relative difference from the right one, or empty if no
    call of the tests had a difference. `difference` is that difference, and `size` the largest
    number of the right result in that call.
    """

    name: str
    words: str  # the description of the bug
    caught: bool  # a test failed
    by: str = ""  # the first test that failed, or how else the run ended
    output: str = ""
    difference: float = 0.0
    size: float = 0.0
    witness: Witness | None = None  # a case that would have caught it


@dataclass(frozen=True)
class Audit:
    """The report of an audit."""

    replaced: str
    operation: Norm
    tests: tuple[str, ...]  # the arguments of pytest
    calls: int  # forward calls in the tests
    gradients: int  # backward calls in the tests
    dtypes: tuple[str, ...]  # the types of x in these calls
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, str]  # wrong kernels that the tests could not catch, and why
    seconds: float  # duration of one run of the tests
    machine: Mapping[str, str]

    @property
    def let_pass(self) -> tuple[Outcome, ...]:
        """The wrong kernels that no test caught."""
        return tuple(each for each in self.outcomes if not each.caught)

    @property
    def passed(self) -> bool:
        """True if the tests caught all wrong kernels."""
        return not self.let_pass

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "schema": "truenorm/audit-1",
            "passed": self.passed,
            **vars(self),
            "operation": self.operation.spec,
        }


SECONDS = 300.0
SHOWN_LINES = 25
"""Last lines of the output of pytest that a message quotes."""
NOT_RUN = {
    4: "pytest finds no such tests, or has no such option",
    5: "pytest has no tests to run: none were found, or selected",
}
"""By exit code."""
NO_GRADIENT = (
    "the tests compute no gradient of --replace; give a backward pass that is a function with "
    "--backward"
)
NO_RECIPE = "any recipe is right unless --recipe requires one"
WITNESS_ELEMENTS = 2**15
"""Elements of the largest case that is tried as a witness."""


def audit_tests(
    tests: Sequence[str],
    task: AuditTask,
    *,
    seconds: float = SECONDS,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Audit:
    """Return which wrong kernels some tests do not catch.

    `tests` are arguments of pytest, `seconds` is the time limit of one run, and `jobs` the number
    of runs in parallel. Raise CannotRunError if the tests fail unchanged, or with a kernel without
    a bug.
    """
    _check(task)
    tell = progress or (lambda *_: None)
    bugs = task.bugs()
    with tempfile.TemporaryDirectory(prefix="truenorm-audit-") as folder:
        session = _Session(tests, Path(folder), seconds)
        tell(0, len(bugs) + 2, "your tests as they are")
        unchanged = session.run(None)
        if unchanged.failure:
            why = unchanged.not_run or f"the tests fail as they are ({unchanged.failure})"
            raise CannotRunError(f"{why}{unchanged.tail}")
        tell(1, len(bugs) + 2, "a right kernel in the place of yours")
        control = session.run(task)
        _check_control(task, control)
        observed = control.observations
        chosen, left_out = select_bugs(task, bugs, observed)
        by_name: dict[str, Outcome] = {}
        with closing(session.run_all(task, chosen, jobs)) as runs:
            for bug, run in runs:
                by_name[bug.name] = _outcome(bug, run)
                tell(2 + len(by_name) + len(left_out), len(bugs) + 2, bug.name)
    tell(len(bugs) + 2, len(bugs) + 2, "inputs that show what passed")
    outcomes: list[Outcome] = []
    for outcome in (by_name[bug.name] for bug in chosen):
        if outcome.caught:
            outcomes.append(outcome)
            continue
        kernel = replace(task, kernel=outcome.name).make_kernel()
        witness = witness_for(kernel, observed.dtypes)
        if witness is None:
            left_out[outcome.name] = f"no input of {', '.join(observed.dtypes)} shows it"
        else:
            outcomes.append(replace(outcome, witness=witness))
    return Audit(
        task.replace,
        task.norm,
        tuple(tests),
        observed.calls,
        observed.backward_calls,
        tuple(observed.dtypes),
        tuple(outcomes),
        left_out,
        unchanged.seconds,
        describe("date", "python", "numpy", "machine"),
    )


def _check(task: AuditTask) -> None:
    """Raise an exception for a task that is not valid, before any test is run."""
    for path in (task.replace, *filter(None, [task.backward])):
        parse_kernel_path(path)
    if task.eps is not None and not 0 <= task.eps < math.inf:
        raise ValueError(f"eps must be finite and at least 0; got {task.eps}")
    if task.signature:
        parse_signature(task.signature, task.norm)
    if task.backward and not task.norm.inputs_of("gradient"):
        raise ValueError(f"{task.norm.title} has no backward pass: leave out --backward")
    task.make_kernel()  # raises ValueError for an unknown recipe
    if find_spec("pytest") is None:
        raise CannotRunError("an audit runs pytest, which is not installed: pip install pytest")


@dataclass(frozen=True)
class PytestRun:
    """How a run of the tests ended, and what the replaced kernel observed.

    `failure` is empty if all tests passed. `not_run` says why the tests did not run to the end.
    """

    failure: str
    not_run: str
    observations: Observations
    printed: str
    seconds: float

    @property
    def tail(self) -> str:
        """A colon and the last lines of the output, or nothing."""
        return "\n".join([":", *self.printed.splitlines()[-SHOWN_LINES:]]) if self.printed else ""


class _Session:
    def __init__(self, tests: Sequence[str], folder: Path, seconds: float) -> None:
        self._folder, self._seconds = folder, seconds
        self._running: set[Program] = set()
        self._stopped = False
        # The user's cache of pytest must not record failures of wrong kernels.
        options = ["-x", "-q", "-o", f"cache_dir={folder / 'cache'}"]
        self._command = [sys.executable, "-m", "pytest", *tests, *options]

    def run(self, task: AuditTask | None) -> PytestRun:
        """Run the tests unchanged, or with a replaced kernel."""
        environment, folder = dict(os.environ), Path(tempfile.mkdtemp(dir=self._folder))
        if task is not None:
            environment |= replace(task, folder=str(folder)).to_environment()
        started = time.perf_counter()
        program = Program(self._command, Path.cwd(), environment)
        self._running.add(program)
        if self._stopped:
            program.stop()
        failure = program.failure(self._seconds)
        self._running.discard(program)
        elapsed = time.perf_counter() - started
        not_run = NOT_RUN.get(program.exit_code, "")
        if failure and elapsed >= self._seconds:
            not_run = f"the tests give {failure}; --seconds sets the limit of one run"
        return PytestRun(failure, not_run, Observations.read(folder), program.printed, elapsed)

    def run_all(
        self, task: AuditTask, bugs: Sequence[PlantedBug], jobs: int
    ) -> Generator[tuple[PlantedBug, PytestRun], None, None]:
        """Yield every bug with its run, as the runs end."""
        with ThreadPoolExecutor(jobs) as pool:
            pending: dict[Future[PytestRun], PlantedBug] = {
                pool.submit(self.run, replace(task, kernel=bug.name)): bug for bug in bugs
            }
            try:
                for future in as_completed(pending):
                    yield pending[future], future.result()
            finally:
                # Cancel pending runs on interrupt.
                pool.shutdown(wait=False, cancel_futures=True)
                self._stopped = True
                for program in list(self._running):
                    program.stop()


def _check_control(task: AuditTask, control: PytestRun) -> None:
    """Raise CannotRunError if the tests do not pass with a kernel without a bug."""
    observed = control.observations
    if observed.error:
        raise CannotRunError(f"{task.replace} cannot be replaced: {observed.error.strip()}")
    if control.not_run:
        raise CannotRunError(
            f"with a right kernel in the place of {task.replace}, {control.not_run}{control.tail}"
        )
    if control.failure:
        raise CannotRunError(
            f"a right {task.norm.title} in the place of {task.replace} fails the tests "
            f"({control.failure}); check --operation and --signature{control.tail}"
        )
    if not observed.calls + observed.backward_calls:
        module = parse_kernel_path(task.replace)[0]
        state = "imported" if observed.imported else "not imported"
        raise CannotRunError(
            f"the tests never call {task.replace}: {module} was {state}; give --replace the "
            "module and the name that the tests import"
        )


def _outcome(bug: PlantedBug, run: PytestRun) -> Outcome:
    """Return the outcome of a run; a time limit or a crash counts as caught."""
    observed = run.observations
    if observed.error:
        raise CannotRunError(f"the planted kernel {bug.name!r} failed:\n{observed.error}")
    differences = {name: pair for name, pair in observed.largest.items() if pair[0] > 0}
    output = max(
        differences,
        key=lambda name: differences[name][0] / (differences[name][1] or 1.0),
        default="",
    )
    difference, size = differences.get(output, (0.0, 0.0))
    by, caught = observed.failed or run.failure, bool(run.failure)
    return Outcome(bug.name, bug.description, caught, by, output, difference, size)


def select_bugs(
    task: AuditTask, bugs: Sequence[PlantedBug], observed: Observations
) -> tuple[list[PlantedBug], dict[str, str]]:
    """Return the bugs that the tests could catch, and why they could not catch the others."""
    chosen, left_out = [], {}
    narrow = any(map(shows_recipe, observed.dtypes))
    if not task.recipe and narrow:
        any_recipe = replace(task, recipe=next(iter(task.norm.knowledge.recipe_names)))
        names = [bug.name for bug in any_recipe.bugs() if bug.by_bits]
        left_out[", ".join(names)] = NO_RECIPE
    for bug in bugs:
        if bug.narrow and not narrow:
            left_out[bug.name] = f"in {', '.join(observed.dtypes)} it is not wrong"
        elif bug.backward and not observed.backward_calls:
            left_out[bug.name] = NO_GRADIENT
        elif not bug.backward and not observed.calls:
            left_out[bug.name] = "the tests call only its backward pass"
        elif reason := _why_right(replace(task, kernel=bug.name).make_kernel(), bug, observed):
            left_out[bug.name] = reason
        else:
            chosen.append(bug)
    return chosen, left_out


def _why_right(kernel: Kernel, bug: PlantedBug, observed: Observations) -> str:
    """Return why a kernel is right in every call of the tests, or nothing if it is not."""
    dtype = next(filter(shows_recipe, observed.dtypes), observed.dtypes[0])
    wrong = kernel.wrong_results(dtype, observed.arguments)
    if not wrong:
        roles = ("data", "parameter", *(("gradient",) if bug.backward else ()))
        absent = [name for name in kernel.norm.inputs_of(*roles) if name not in observed.arguments]
        return f"no call has {' or '.join(absent)} among its arguments"
    if not set(wrong) & set(observed.results):
        return f"no call has {' or '.join(wrong)} among its results"
    return ""


def witness_for(kernel: Kernel, dtypes: Sequence[str]) -> Witness | None:
    """Return a case of one of these types with a finding, or None if there is none."""
    by_bits = kernel.bug is not None and kernel.bug.by_bits
    for case in _suite(kernel.norm, dtypes):
        if by_bits and not shows_recipe(case.dtype):
            continue
        recipe = kernel.roundings if by_bits else ""
        findings = _findings(kernel, case, recipe)
        # Too few elements do not show that a right kernel follows the recipe.
        if findings and not (by_bits and _findings(kernel.without_bug(), case, recipe)):
            symptom = findings[0].symptom
            return Witness(case.name, _expression(case, kernel.norm), case.why, symptom)
    return None


def _findings(kernel: Kernel, case: Case, recipe: str) -> Sequence[Finding]:
    subject = Subject(
        kernel.forward,
        kernel.backward,
        dtypes=[case.dtype],
        operation=kernel.norm,
        recipe=recipe,
    )
    records = [runner_for(subject).run(case, Call())]
    return grade_records(subject, [case], records, subject.spec()).findings


def _suite(norm: Norm, dtypes: Sequence[str]) -> Iterator[Case]:
    """Yield cases of each type: ordinary ones first, and small ones before large ones."""
    for dtype in dtypes:
        suite = [each for each in cases(dtype, operation=norm) if each.x.size <= WITNESS_ELEMENTS]
        yield from sorted(suite, key=lambda case: (case.kind != "ordinary", case.x.size))


def _expression(case: Case, norm: Norm) -> str:
    operation = "" if norm is LAYER_NORM else f", operation={norm.spec!r}"
    return f"tv.case({case.name!r}{operation})"
