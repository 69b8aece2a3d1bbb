"""A score of a kernel from 0 to 1, for programs that write kernels and are rewarded for them.

The cases are drawn by a seed that the writer does not know. The kernel runs in another process,
which has the inputs and no answers; these are computed here. `points` turns the report into a
number, and `HACKS` are the signs of cheating for which the score is 0.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from truenorm.tools.user_files import open_regular
from truenorm.verify.grading.checks import PATIENCE, UNEXPLAINED, planned_calls
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import CaseResult, Report
from truenorm.verify.harnesses import HarnessSubject
from truenorm.verify.judge import collect
from truenorm.verify.operation import Case, Domain, Operation
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import expected, forget
from truenorm.verify.running.command import TAIL_BYTES
from truenorm.verify.running.guarded import NO_TORCH, NOTES, OUTPUT, is_norm
from truenorm.verify.running.recorded import LOG, Recorded, parse_json, read_file, read_log
from truenorm.verify.running.recording import (
    RUNNER,
    Recording,
    make_recording,
    source_of,
    write_recording,
)
from truenorm.verify.running.records import CannotRunError, Record
from truenorm.verify.running.runner import GROUPS, START_SECONDS, start_group
from truenorm.verify.running.runners import try_a_call
from truenorm.verify.running.schema import DamagedResultsError, are_texts
from truenorm.verify.subject import Subject, SubjectSpec, in_another_process
from truenorm.verify.submission import (
    CASES,
    INPUTS_THAT_MAY_BE_REFUSED,
    LARGEST,
    MAY_BE_REFUSED,
    NON_FINITE,
    SECONDS,
    Form,
    Norms,
    Submission,
    draw_modes,
    draw_suite,
    generator,
)

GUARDED = "guarded.py"
POINTS = {
    "wrong": 0.0,
    "unstable": 0.3,
    "conditional": 0.7,
    "stable": 0.9,
    "faithful": 0.95,
    "correct": 1.0,
}
"""The points of a grade."""
DAMAGE = ("raised", "result", "shape", "type", "inputs", "overwritten", "stale", "spent")
"""Checks that a kernel must pass for more than 0.1: it runs, and damages nothing."""

MOST_WITHOUT_NAN = 0.5
"""The largest score of a kernel whose NaN and infinity are not where they must be: a model that
has diverged looks well."""


@dataclass(frozen=True)
class Score:
    """The score of a kernel.

    Attributes
    ----------
    value : float
        From 0 to 1.
    reasons : tuple of str
        What lowers it, as sentences; the most important first.
    target : str
    dtypes : tuple of str
    cases : int
        The number of cases that count.
    ordinary : float
        The share of results of ordinary cases that are right.
    grades : dict of str to dict of str to str
        By type and output.
    verdicts : dict of str to str
        By check: pass, fail or not judged.
    operation : Operation
    """

    value: float
    reasons: tuple[str, ...]
    target: str
    dtypes: tuple[str, ...]
    cases: int = 0
    ordinary: float = 0.0
    grades: dict[str, dict[str, str]] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    operation: Operation = field(kw_only=True, repr=False)


def score(
    target: str | HarnessSubject,
    operation: Operation | str = "layer_norm",
    *,
    seed: int,
    dtypes: Sequence[str] = ("float32",),
    python: str = sys.executable,
    norms: Norms = "forbidden",
    cases: int = CASES,
    largest: float = LARGEST,
    form: Form = "functional",
    signature: str = "",
    backward: str = "",
    device: str = "cpu",
    seconds: float = SECONDS,
    causes: bool = False,
    shapes: Sequence[Sequence[int]] = (),
) -> Score:
    r"""Score a PyTorch kernel, which may have been written to cheat.

    Most of the time is the import of PyTorch; ``truenorm score --serve`` imports it once.

    Parameters
    ----------
    target : str or HarnessSubject
        ``file.py:function`` or ``package.module:function``; or a submission to another harness,
        whose operation, types and form are used.
    operation : Operation or str
        What the kernel computes.
    seed : int
        Draws the cases: their widths, numbers and order. Keep it from the writer of the kernel,
        and change it from run to run.
    dtypes : sequence of str
        The types to judge.
    python : str
        The interpreter of an environment with PyTorch; it does not need truenorm.
    norms : str
        ``forbidden``: a kernel that calls a norm of PyTorch scores 0. Or ``allowed``.
    cases : int
        The number of cases of each type.
    largest : float
        The largest \|x\|.
    form : str
        ``functional``, ``out``, ``inplace`` or ``module``, as for `torch_subject`.
    signature : str
        The arguments in order, if they have other names: ``"x, weight, eps"``.
    backward : str
        A function of the same file; by default, autograd differentiates the result.
    device : str
        The device of the tensors.
    seconds : float
        Time limit of one call.
    causes : bool
        Also search for the likely causes of wrong results, which takes seconds.
    shapes : sequence of sequence of int
        The shapes of x, as ``[(16, 1024)]``, of a kernel that takes no others: it is called with
        these alone, on as many cases for each. By default, the seed draws shapes.

    Returns
    -------
    Score
        ``value``, from 0 to 1, and ``reasons``.

    Raises
    ------
    CannotRunError
        If there is no PyTorch. A kernel that cannot be run scores 0.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.score("submission.py:layer_norm", seed=81).value  # doctest: +SKIP
    0.94
    >>> tv.score("submission.py:layer_norm", seed=81, python="no-such-python")
    Traceback (most recent call last):
        ...
    truenorm.verify.running.records.CannotRunError: cannot start no-such-python: ...
    """
    with ExitStack() as stack:
        layouts = special = True
        if isinstance(target, HarnessSubject):
            layouts, special = False, not target.product  # its task fixes the shape
            operation, dtypes, form = target.operation, target.dtypes, target.form
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="truenorm-"))
            target = target.write(folder)
        submission = Submission(
            target,
            as_operation(operation),
            seed,
            dtypes=tuple(dtypes),
            norms=norms,
            cases=cases,
            largest=largest,
            form=form,
            signature=signature,
            backward=backward,
            device=device,
            seconds=seconds,
            causes=causes,
            layouts=layouts,
            special=special,
            shapes=tuple(map(tuple, shapes)),
        )
        return score_submission(submission, OneRun(python))


class OneRun:
    """Runs each recording in a process of its own, which imports PyTorch."""

    def __init__(self, python: str) -> None:
        self.python = python

    def start(self, arguments: Sequence[str]) -> Callable[[], int]:
        """Start a run, and return a function that waits for its exit code."""
        folder = Path(arguments[1])
        (folder / GUARDED).write_bytes(source_of(GUARDED))
        with (folder / OUTPUT).open("wb") as output:
            command = [str(folder / GUARDED), *arguments]
            process = start_python(self.python, command, stdout=output, stderr=output)
        return partial(finish_group, process)


class Server:
    """Runs recordings in forks of one process that has imported PyTorch."""

    def __init__(self, python: str) -> None:
        if not hasattr(os, "fork"):
            raise CannotRunError("this system cannot fork: score one kernel at a time")
        self._python, self._folder = python, tempfile.TemporaryDirectory(prefix="truenorm-")
        for name in (RUNNER, GUARDED):
            Path(self._folder.name, name).write_bytes(source_of(name))
        self._process = self._launch()

    def _launch(self) -> "subprocess.Popen[str]":
        command = [str(Path(self._folder.name, GUARDED)), "--serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        return start_python(self._python, command, **pipes)

    def __enter__(self) -> "Server":
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        finish_group(self._process)
        self._folder.cleanup()

    def start(self, arguments: Sequence[str]) -> Callable[[], int]:
        """Start a run, and return a function that waits for its exit code."""
        if self._process.poll() is not None:  # a kernel has killed it
            finish_group(self._process)
            self._process = self._launch()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended, as its exit code says
            self._process.stdin.write(f"{json.dumps(arguments)}\n")
            self._process.stdin.flush()
        return self._finish

    def _finish(self) -> int:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        return int(line) if line else self._process.wait()


ENVIRONMENT = {
    "PYTHONSAFEPATH": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # else threads of the compiler wait for work
    "KINETO_LOG_LEVEL": "99",  # else the last line is one of the profiler
}


def start_python(python: str, command: Sequence[str], **streams: Any) -> "subprocess.Popen[Any]":
    """Start an interpreter whose environment does not lead to truenorm."""
    variables = {name: each for name, each in os.environ.items() if not name.startswith("PYTHON")}
    try:
        return start_group([python, *command], env={**variables, **ENVIRONMENT}, **streams)
    except OSError as error:
        raise CannotRunError(f"cannot start {python}: {error.strerror}") from error


def finish_group(process: "subprocess.Popen[Any]") -> int:
    """Wait for the end of a process, and return its exit code."""
    process.communicate()
    GROUPS.note(process.pid, alive=False)
    return process.returncode


def score_submission(submission: Submission, runs: OneRun | Server) -> Score:
    """Score a submission: draw cases, run them, and compare the results with exact answers."""
    suite = draw_suite(submission)
    scope = {"dtypes": submission.dtypes, "level": "score", "also": (), "seed": 0}
    scope["modes"] = draw_modes(suite, generator(submission.seed, "modes"))
    patience = min(PATIENCE, submission.seconds)
    recording = make_recording(suite, planned_calls, patience=patience, scope=scope)
    with tempfile.TemporaryDirectory(prefix="truenorm-") as parent:
        folder = Path(parent, "cases")
        write_recording(folder, recording)
        finish = runs.start(submission.arguments(folder))
        for case in suite:  # while the kernel runs
            answers = expected(case)
            for output in answers.types:
                answers.allowed(output)
        code = finish()
        try:
            output = _last_line(folder / OUTPUT)
            if code == NO_TORCH:
                raise CannotRunError(f"PyTorch cannot be imported there: {output}")
            if not (folder / LOG).exists():
                return _zero(submission, f"It cannot be run: {output}.")
            if code:
                limit = START_SECONDS + submission.seconds
                slow = f"its first call took longer than {limit:g} s, or it was killed"
                killed = code % 256 == -signal.SIGKILL % 256  # of a process, or of its child
                why = slow if killed else output
                return _zero(submission, f"Its run ended early: {why}.")
            return _judged(submission, suite, folder, recording)
        finally:
            forget(suite)


def _judged(
    submission: Submission, suite: Sequence[Case], folder: Path, recording: Recording
) -> Score:
    """Judge the results of a run."""
    try:
        log, seen = read_log(folder, recording), _notes((folder / LOG).with_name(NOTES))
        subject = Subject(
            in_another_process,
            backward=in_another_process if log[0]["backward"] else None,
            name=submission.target,
            operation=submission.operation,
            dtypes=submission.dtypes,
            seconds=submission.seconds,
        )
        runner = Recorded(folder, subject, recording, log)
        records = [*try_a_call(runner, suite), *collect(runner, suite)]
        refused = refused_layouts(suite, records)
        suite = [case for case in suite if case.name not in refused]
        records = [record for record in records if record.case not in refused]
    except CannotRunError as error:
        return _zero(submission, f"It cannot be judged: {error}")
    domain = Domain(largest=submission.largest)
    report = grade(
        subject.name,
        suite,
        records,
        outputs=subject.outputs,
        spec=SubjectSpec.of(subject),
        domain=domain,
        strict=False,
        causes=submission.causes,
    )
    outputs = submission.operation.outputs_of(backward=False)
    evidence = Evidence(submission.norms, seen, log, outputs)
    hacks = [reason for find in HACKS.values() for reason in find(evidence)]
    ordinary = ordinary_share(suite, report)
    return Score(
        0.0 if hacks else points(report, ordinary),
        (*hacks, *_reasons(report), *refused.values(), *_limits(submission)),
        submission.target,
        submission.dtypes,
        report.cases,
        ordinary,
        _grades(report),
        report.verdicts,
        operation=submission.operation,
    )


def _notes(file: Path) -> dict[str, Any]:
    """Return what the guards of a run saw: lists of names; nothing without a file."""
    if not file.exists():
        return {}
    seen = parse_json(read_file(file))
    names = seen.values() if isinstance(seen, dict) else [0]
    if not all(each is None or each == [] or are_texts(each) for each in names):
        raise DamagedResultsError(f"{file.name} must have lists of names")
    return dict(seen)


def refused_layouts(suite: Iterable[Case], records: Iterable[Record]) -> dict[str, str]:
    """Return the cases that do not count, with a sentence: a kernel may refuse shapes and strides.

    It has to raise an exception: a wrong result counts.
    """
    layouts = {
        case.name: f"x in the layout {case.layout}"
        for case in suite
        if case.layout in MAY_BE_REFUSED
    } | {case.name: case.family for case in suite if case.family in INPUTS_THAT_MAY_BE_REFUSED}
    return {
        record.case: f"It refuses {layouts[record.case]}, which does not count."
        for record in records
        if record.case in layouts and record.failure.startswith("raised ")
    }


def _last_line(output: Path) -> str:
    """Return the last line that a process printed."""
    try:
        with open_regular(output) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            lines = file.read(TAIL_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return "it ended the process that started it, or removed its output"
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")


def _zero(submission: Submission, reason: str) -> Score:
    return Score(
        0.0, (reason,), submission.target, submission.dtypes, operation=submission.operation
    )


def points(report: Report, ordinary: float) -> float:
    """Return the score of a report, given the share of ordinary results that are right.

    A kernel that fails on ordinary input, raises or damages something gets at most 0.1. Checks
    other than accuracy count only beyond that: zeros are repeatable.
    """
    if ordinary < 1 or any(each.guard in DAMAGE for each in report.findings):
        return round(0.1 * ordinary**2, 6)
    judged = [verdict for verdict in report.verdicts.values() if verdict != "not judged"]
    passing = judged.count("pass") / len(judged)
    mean = sum(POINTS[each.grade] for each in report.grades) / len(report.grades)
    most = MOST_WITHOUT_NAN if report.verdicts.get("special values") == "fail" else 1.0
    return min(most, round(0.3 + 0.6 * mean + 0.1 * passing, 6))


def ordinary_share(suite: Iterable[Case], report: Report) -> float:
    """Return the share of results of ordinary cases that are right, but for their kappa.

    A result that is missing is not right. Rows with a mean count as well, and rows beside one with
    NaN or infinity.
    """
    right = sum(
        counts_as_ordinary(each) and each.needs < UNEXPLAINED
        for each in (*report.results, *report.results_beyond)
    )
    outputs = [each.dtype for each in report.grades]
    every = sum(outputs.count(case.dtype) for case in suite if counts_as_ordinary(case))
    return right / every if every else 0.0


def counts_as_ordinary(case: Case | CaseResult) -> bool:
    """Return True for a case whose finite answers no honest kernel misses, but for their kappa."""
    return case.kind in ("ordinary", "sweep") or case.family == NON_FINITE


def _grades(report: Report) -> dict[str, dict[str, str]]:
    grades: dict[str, dict[str, str]] = {}
    for each in report.grades:
        grades.setdefault(each.dtype, {})[each.output] = each.grade
    return grades


def _reasons(report: Report) -> Iterator[str]:
    """Yield a sentence for each finding, and for each grade that is not the best."""
    for finding in report.findings:
        cause = f" Likely cause: {finding.cause}." if finding.cause else ""
        yield f"{finding.verdict}: {finding.symptom} ({finding.why}).{cause}"
    if not any(each.output.startswith("d") for each in report.grades):
        yield "Only results of the forward pass are judged: there is no backward pass."
    for each in report.grades:
        if each.grade != "correct":
            yield f"The grade of {each.output} in {each.dtype} is {each.grade}."


def _limits(submission: Submission) -> Iterator[str]:
    """Yield a sentence about the shapes of a score, if they are given."""
    if submission.shapes:
        texts = ["x".join(map(str, shape)) for shape in submission.shapes]
        yield f"Only x of the shape {' or '.join(texts)} is judged."


class Evidence(NamedTuple):
    """What the guards of a run saw: `notes` of its process, and the entries of its log."""

    norms: Norms
    notes: Mapping[str, Any]
    log: Sequence[Mapping[str, Any]]
    outputs: Sequence[str] = ("y",)

    def noted(self, key: str) -> dict[str, str]:
        """Return the notes of all calls under a key, by output of forward.

        Those of autograd may well be in the memory of an incoming gradient.
        """
        notes = {name: text for entry in self.log for name, text in entry.get(key, {}).items()}
        return {name: text for name, text in notes.items() if name in self.outputs}


def _own_norms(seen: Evidence) -> Iterator[str]:
    if seen.norms == "allowed":
        return
    operators = filter(is_norm, seen.notes.get("operators") or ())
    if called := {*operators, *seen.notes.get("norms", ())}:
        names = ", ".join(sorted(called))
        yield f"It calls {names} of PyTorch, which is forbidden, also while its file is imported."
    if symbols := seen.notes.get("symbols"):
        yield f"It looks up functions in the libraries of PyTorch: {', '.join(symbols)}."
    if imported := seen.notes.get("imports"):
        yield f"It imports other norms: {', '.join(imported)}."


def _unseen(seen: Evidence) -> Iterator[str]:
    died = any("deaths" in entry for entry in seen.log)
    if not died and seen.notes.get("operators") is None:
        yield "It stopped the profiler that notes which operators of PyTorch are called."


def _replaced(seen: Evidence) -> Iterator[str]:
    if replaced := seen.notes.get("replaced"):
        yield f"It replaces functions of its process: {', '.join(replaced)}."


def _types(seen: Evidence) -> Iterator[str]:
    for output, kind in seen.noted("types").items():
        yield f"{output} is of the type {kind}, which may compute later."


def _shared(seen: Evidence) -> Iterator[str]:
    for output, name in seen.noted("shared").items():
        yield f"{output} is in the memory of {name}."


def _threads(seen: Evidence) -> Iterator[str]:
    if seen.notes.get("threads"):
        yield "It returns before its threads have ended."


def _settings(seen: Evidence) -> Iterator[str]:
    if names := seen.notes.get("settings"):
        yield f"It changes settings of its process: {', '.join(names)}."


def _gaps(seen: Evidence) -> Iterator[str]:
    if names := seen.notes.get("gaps"):
        yield f"It writes between the elements of {', '.join(names)}."


def _graphs(seen: Evidence) -> Iterator[str]:
    for mode in seen.notes.get("graphs", ()):
        yield f"Its results require gradients in {mode}."


HACKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "norms": _own_norms,
    "profiler": _unseen,
    "replaced": _replaced,
    "types": _types,
    "shared": _shared,
    "threads": _threads,
    "settings": _settings,
    "gaps": _gaps,
    "graphs": _graphs,
}
"""Signs of cheating, for which the score is 0."""
