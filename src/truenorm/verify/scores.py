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
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from truenorm.verify.cases.families import EPSILONS, PLAIN_X, WIDTHS, Family
from truenorm.verify.cases.midpoints import NEXT_TO_MIDPOINTS, midpoints_of_width
from truenorm.verify.grading.checks import PATIENCE, UNEXPLAINED, planned_calls
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.harnesses import HarnessSubject
from truenorm.verify.judge import collect
from truenorm.verify.operation import AS_SHAPE, Case, Domain, Operation
from truenorm.verify.operations import as_operation
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.shapes import (
    MANY_DISTINCT,
    Shape,
    divide_shape,
    in_shape,
    with_columns,
)
from truenorm.verify.oracle import expected, forget
from truenorm.verify.running.guarded import INFERENCE, NO_GRAD, NO_TORCH, NOTES, OUTPUT, is_norm
from truenorm.verify.running.recorded import LOG, Recorded, read_log
from truenorm.verify.running.recording import (
    RUNNER,
    Recording,
    make_recording,
    source_of,
    write_recording,
)
from truenorm.verify.running.records import CannotRunError, Record
from truenorm.verify.running.runner import START_SECONDS
from truenorm.verify.running.runners import try_a_call
from truenorm.verify.subject import Subject, SubjectSpec, in_another_process
from truenorm.verify.types import FORMATS, Array

Norms = Literal["forbidden", "allowed"]
Form = Literal["functional", "out", "inplace", "module"]
GUARDED = "guarded.py"
LARGEST, CASES, SECONDS = 1e4, 48, 20.0
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


@dataclass(frozen=True)
class Submission:
    """A kernel to score; `score` documents the fields.

    If `layouts` is False, x is a contiguous matrix unless the operation says otherwise. If
    `special` is False, there is no NaN or infinity.
    """

    target: str
    operation: Operation
    seed: int
    dtypes: tuple[str, ...] = ("float32",)
    norms: Norms = "forbidden"
    cases: int = CASES
    largest: float = LARGEST
    form: Form = "functional"
    signature: str = ""
    backward: str = ""
    device: str = "cpu"
    seconds: float = SECONDS
    causes: bool = False
    layouts: bool = True
    special: bool = True
    shapes: tuple[Shape, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a field that is out of range."""
        if not self.dtypes or not set(self.dtypes) <= FORMATS.keys():
            raise ValueError(f"dtypes must be of {', '.join(FORMATS)}; got {list(self.dtypes)}")
        if self.norms not in ("forbidden", "allowed"):
            raise ValueError(f"norms must be forbidden or allowed, got {self.norms!r}")
        if self.cases < FEWEST_CASES:
            raise ValueError(f"cases must be {FEWEST_CASES} or above, got {self.cases}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or above, got {self.seed}")
        for shape in self.shapes:
            divide_shape(_as_norm(self.operation), shape)

    def arguments(self, folder: Path) -> list[str]:
        """Return the arguments of the runner."""
        options = {
            "--form": self.form,
            "--signature": self.signature,
            "--backward": self.backward,
            "--device": self.device,
            "--seconds": str(self.seconds),
        }
        given = [f"{name}={value}" for name, value in options.items() if value]
        return [self.target, str(folder), *given]


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
        return process.wait


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
        self._process.communicate()
        self._folder.cleanup()

    def start(self, arguments: Sequence[str]) -> Callable[[], int]:
        """Start a run, and return a function that waits for its exit code."""
        if self._process.poll() is not None:  # a kernel has killed it
            self._process.communicate()
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
        return subprocess.Popen([python, *command], env={**variables, **ENVIRONMENT}, **streams)
    except OSError as error:
        raise CannotRunError(f"cannot start {python}: {error.strerror}") from error


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
            expected(case)
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
        log = read_log(folder, recording)
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
    notes = (folder / LOG).with_name(NOTES)
    seen = json.loads(notes.read_text(encoding="utf-8")) if notes.exists() else {}
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


def refused_layouts(suite: Iterable[Case], records: Iterable[Record]) -> dict[str, str]:
    """Return the cases that do not count, with a sentence: a kernel may refuse shapes and strides.

    It has to raise an exception: a wrong result counts.
    """
    layouts = {
        case.name: f"x in the layout {case.layout}"
        for case in suite
        if case.layout in MAY_BE_REFUSED
    } | {case.name: case.family for case in suite if case.family in GRADIENTS_THAT_MAY_BE_REFUSED}
    return {
        record.case: f"It refuses {layouts[record.case]}, which does not count."
        for record in records
        if record.case in layouts and record.failure.startswith("raised ")
    }


def _last_line(output: Path) -> str:
    """Return the last line that a process printed."""
    if not output.exists():
        return "it ended the process that started it"
    lines = output.read_text(encoding="utf-8", errors="replace").split("\n")
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

    A result that is missing is not right.
    """
    right = sum(
        each.kind == "ordinary" and each.needs < UNEXPLAINED
        for each in (*report.results, *report.results_beyond)
    )
    outputs = [each.dtype for each in report.grades]
    every = sum(outputs.count(case.dtype) for case in suite if case.kind == "ordinary")
    return right / every if every else 0.0


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
        yield f"It calls {names} of PyTorch, which is forbidden, even on import."
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


HACKS: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "norms": _own_norms,
    "profiler": _unseen,
    "replaced": _replaced,
    "types": _types,
    "shared": _shared,
    "threads": _threads,
}
"""Signs of cheating, for which the score is 0."""

LEFT_OUT = frozenset(
    {"large", "repeated", "row-counts", "row-limit", "batch-sizes", "served", "many-rows"}
)
"""Families whose calls take long."""
MOST_ELEMENTS, MOST_IN_A_CALL = 2500, 40_000
"""Elements of x in a case: without repeated rows, whose exact answers cost nothing, and with."""
FEW_ELEMENTS = 1100
"""The same for a case of ordinary rows; a wider one has one row, whose answers are enclosed."""
SEEDS_OF_WIDTHS, FIRST_CASES, USUAL_WIDTHS = 2, 30, 3
"""Each seed draws three widths; ordinary cases are among the first ones."""
TWINS = 3
"""Ordinary cases that have another one of the same shape."""
WIDE_RANGES = ((2048, 4096), (4096, 20_480), (20_480, 65_537))
"""One row of each range is drawn."""
ALWAYS_WIDE, OFTEN_WIDE = (4096, 8192), (2048, 2560, 3072)
"""Wide rows that are always drawn; one of the others is, half of the time, that of its range."""
BATCHES = ((5, 31, 1), (16, 31, 9))
"""Rows of two batches, and how often they are repeated at most."""
MANY_ELEMENTS, MANY_ROWS_WIDTH = 2**21, 256
"""One case has more elements, and rows of at least this width, which are repeated."""
MAY_BE_REFUSED = {
    **dict.fromkeys(("three-axes", "four-axes", "one-axis"), "ranks"),
    "padded": "padded-rows",
}
"""Layouts of a few cases, and the extension that an operation has for them."""
EXPANDED = "an expanded dy"
GRADIENTS_THAT_MAY_BE_REFUSED = (EXPANDED, "a transposed dy")
"""Families of two cases: their dy is one number in memory, or its columns are contiguous."""
ORDINARY = 9
"""Ordinary cases in each shape of a kernel that takes no others."""
MIDPOINT_ROWS = 12
FEWEST_CASES = 30


def draw_suite(submission: Submission) -> list[Case]:
    """Return the cases of a submission, without names that describe them."""
    suite = [
        case
        for dtype in submission.dtypes
        for case in draw_cases(submission, dtype, generator(submission.seed, dtype))
        if submission.special or case.kind != "special"
    ]
    return [replace(case, name=f"{case.dtype}-{number}") for number, case in enumerate(suite)]


def draw_modes(suite: Sequence[Case], random: np.random.Generator) -> list[str | list[str]]:
    """Return the mode of the calls of each case; about as many ordinary cases have each of them.

    Every second list of inputs that require gradients has the first input: its gradient is the
    one that kernels shorten.
    """
    first, *others = suite[0].operation.inputs_of("data", "parameter")
    modes: dict[str, str | list[str]] = {}
    for number, case in enumerate(sorted(suite, key=lambda case: case.kind != "ordinary")):
        has_first = number % 8 < 4
        count = int(random.integers(max(len(others), 1))) + (not has_first)
        some = [first] * has_first + random.permutation(others)[:count].tolist()
        modes[case.name] = ("", NO_GRAD, INFERENCE, some)[number % 4]
        if case.x.size > MANY_ELEMENTS:  # a call of it takes longer than all others
            modes[case.name] = str(random.choice(["", NO_GRAD]))
    return [modes[case.name] for case in suite]


def generator(seed: int, *purpose: str) -> np.random.Generator:
    """Return random numbers of a seed; another purpose has others."""
    return np.random.default_rng([seed, *(zlib.crc32(each.encode()) for each in purpose)])


def draw_cases(submission: Submission, dtype: str, random: np.random.Generator) -> list[Case]:
    """Draw the cases of a type.

    Those that decide a grade are always there: rows in batches, all steps of the condition number,
    rows next to midpoints, one case with non-finite and one with subnormal numbers. Some others
    have widths that are drawn, and a few of these have a twin: a kernel that caches results by
    shape or by address is wrong there. Others have one, three or four axes, gaps or an offset, or
    a dy that lies otherwise.
    Some rows are wide, and one call has many rows. The rest is one case from each of some other
    families.
    """
    if submission.shapes:
        shapes = dict.fromkeys(submission.shapes)
        return [case for each in shapes for case in draw_in(each, submission, dtype, random)]
    operation, largest = submission.operation, submission.largest
    every = [*_seeded(operation, dtype, random)]
    pool = [case for case in every if is_scored(case, largest)]
    always = _decisive(pool)
    widths = drawn_widths(operation, dtype, random)
    always += [*widths[:TWINS], *(hidden(case, random) for case in widths[:TWINS])]
    others = widths[TWINS:]
    always += laid_out(others, random) if submission.layouts else others
    if submission.layouts and not submission.backward:  # whose caller knows what it takes
        always += gradients_laid_out(widths, random)
    always += wide_rows(every, random)
    always += many_rows(widths)
    always += non_finite(widths[0], random)
    always += batches((case for case in always if case.family == "batch"), random)
    return _completed(always, pool, submission.cases, random)


def draw_in(
    shape: Shape, submission: Submission, dtype: str, random: np.random.Generator
) -> list[Case]:
    """Draw the cases of a type in one shape: those of `draw_cases` that are not about others.

    Other cases of the plain norm get its columns, some several times, in an order that is drawn.
    """
    norm = _as_norm(submission.operation)
    plain = Norm("layer_norm" if norm.centred else "rms_norm") if norm.is_variant else norm
    divided = divide_shape(norm, shape)
    ordinary: list[Case] = []
    for number in range(ORDINARY):
        most = MANY_DISTINCT if number == 0 else 0
        eps = EPSILONS[number % len(EPSILONS) if norm.eps is None else 0]
        family = Family("normal", PLAIN_X[number % 3], "ordinary", "ordinary input", eps=eps)
        rows = divided.units * divided.distinct_rows(MANY_DISTINCT)
        case = family.case(plain, dtype, rows, divided.size, int(random.integers(1, 2**31)))
        ordinary += in_shape(norm, shape, replace(case, seeded=True), most)
    others = [
        case
        for case in _seeded(plain, dtype, random)
        if is_scored(case, submission.largest)
        and case.layout == "rows"
        and case.family not in ("normal", NEXT_TO_MIDPOINTS)
    ]
    others += midpoints_of_width(plain, dtype, divided.size, centred=plain.centred)
    pool = [
        made
        for case in others
        for made in in_shape(norm, shape, hidden(with_columns(case, divided.size), random))
    ]
    always = [*_decisive(pool), *ordinary, *non_finite(ordinary[-1], random)]
    return _completed(always, pool, submission.cases, random)


def _as_norm(operation: Operation) -> Norm:
    if not isinstance(operation, Norm):
        raise ValueError(f"shapes are for results of truenorm.verify.norm, got {operation.name}")
    return operation


def _decisive(pool: Sequence[Case]) -> list[Case]:
    """Return the cases that decide a grade."""
    always = [case for case in pool if case.kind == "sweep" or case.family == NEXT_TO_MIDPOINTS]
    return always + [case for case in pool if case.family == "batch" and case.kind == "ordinary"]


def _completed(
    always: Sequence[Case], pool: Iterable[Case], count: int, random: np.random.Generator
) -> list[Case]:
    """Return some cases and, until there are so many, one of each other family of a pool."""
    families: dict[str, list[Case]] = {}
    for case in pool:
        if case.kind in ("special", "subnormal"):
            families.setdefault(case.kind, []).append(case)
        elif case.family != "normal" and not any(case is each for each in always):
            families.setdefault(f"{case.kind} {case.family}", []).append(case)
    one_each = [cases[random.integers(len(cases))] for cases in families.values()]
    order = [one_each[place] for place in random.permutation(len(one_each))]
    order.sort(key=lambda case: case.kind not in ("special", "subnormal"))
    drawn = [*always, *order][: max(count, len(always))]
    return [drawn[place] for place in random.permutation(len(drawn))]


def _seeded(operation: Operation, dtype: str, random: np.random.Generator) -> Iterator[Case]:
    """Yield the cases of a seed; those that have none are hidden."""
    seed = int(random.integers(1, 2**31))
    for case in operation.cases(dtype, "quick", seed):
        if not case.needs:
            known = not case.name.endswith(f"-{seed}")
            yield replace(hidden(case, random) if known else case, seeded=True)


def drawn_widths(operation: Operation, dtype: str, random: np.random.Generator) -> list[Case]:
    """Return ordinary cases of widths that are drawn, and of a few that are usual."""
    drawn: list[Case] = []
    usual: list[Case] = []
    for _ in range(SEEDS_OF_WIDTHS):
        seed = int(random.integers(1, 2**31))
        for case in islice(operation.cases(dtype, "quick", seed), FIRST_CASES):
            if case.family == "normal" and not case.enclosed:
                in_list = case.shape[1] in WIDTHS["quick"]
                (usual if in_list else drawn).append(case)
    usual = [case for case in usual if case.x.size <= FEW_ELEMENTS]
    some = [usual[place] for place in random.permutation(len(usual))[:USUAL_WIDTHS]]
    wide = [
        case if case.x.size <= FEW_ELEMENTS else replace(case.part(slice(1)), enclosed=True)
        for case in drawn
    ]
    return [replace(case, seeded=True) for case in (*wide, *some)]


def laid_out(cases: Iterable[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield cases with one, three and four axes, with gaps between rows, and with an offset."""
    left = ["unaligned", *(each for each in MAY_BE_REFUSED if each != "one-axis")]
    random.shuffle(left)
    for case in cases:
        known = case.operation.extensions.keys() | {""}
        one, even = case.shape[0] == 1, case.shape[0] % 2 == 0
        layout = "one-axis" if one else left.pop() if left and even else "rows"
        if case.layout != "rows" or MAY_BE_REFUSED.get(layout, "") not in known:
            layout = case.layout
        if layout == case.layout:
            yield case
        else:
            yield replace(case, layout=layout, family="layouts", why=f"{case.why}, {layout}")


def gradients_laid_out(cases: Iterable[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield a case whose dy is constant, which the runner expands, and one of a transposed dy."""
    some = [
        case
        for case in cases
        if case.layout == "rows" and not case.enclosed and case.inputs.get("gamma") is not None
    ]
    for family in GRADIENTS_THAT_MAY_BE_REFUSED if some and "dy" in some[0].inputs else ():
        case = hidden(some[random.integers(len(some))], random)
        case = replace(case, family=family, why=f"{case.why}, {family}")
        if family == EXPANDED:
            constant = np.full_like(case.dy, random.choice([0.5, 1.0, 2.0]))
            yield case.with_inputs(dy=constant)
        else:
            yield replace(case, gradient_layout="transposed")


def wide_rows(cases: Iterable[Case], random: np.random.Generator) -> list[Case]:
    """Return one row of each of two usual widths, and one of a width from each range."""
    least = WIDE_RANGES[0][0]
    wide = {
        case.shape[1]: replace(case.part(slice(1)), family="wide")
        for case in cases
        if case.enclosed and case.kind == "ordinary" and case.shape[1] >= least
    }
    rows = [wide.pop(width) for width in ALWAYS_WIDE if width in wide]
    for low, high in WIDE_RANGES:
        usual = [width for width in OFTEN_WIDE if low <= width < high]
        often = bool(usual) and random.random() < 0.5
        size = int(random.choice(usual) if often else random.integers(low, high))
        some = [case for case in wide.values() if takes_width(case)]
        some = some or [case for width, case in wide.items() if low <= width < high]
        if some:
            rows.append(resized(some[random.integers(len(some))], size, random))
    return rows


def takes_width(case: Case) -> bool:
    """Return True if rows of a case may have any number of columns."""
    return case.layout == "rows" and not case.operation.spec.count(",")


def resized(case: Case, size: int, random: np.random.Generator) -> Case:
    """Return a case with another number of columns, in another order, if it takes that."""
    if not takes_width(case):
        return hidden(case, random)
    made = hidden(with_columns(case, size), random)
    return replace(made, why=f"ordinary input, D = {size}")


def batches(cases: Iterable[Case], random: np.random.Generator) -> Iterator[Case]:
    """Yield two batches of a number of rows that is drawn."""
    for case in cases:
        for low, high, most in BATCHES:
            rows = case.part(slice(int(random.integers(low, high))))
            made = resized(rows, int(random.integers(9, 100)), random)
            times = int(random.integers(2, most + 1)) if most > 1 else 1
            many = made.tiled(times)
            yield replace(many, family="rows", why=f"ordinary input, {many.shape[0]} rows")


def many_rows(cases: Iterable[Case]) -> list[Case]:
    """Return a case whose rows are repeated until the call is large."""
    wide = [case for case in cases if case.layout == "rows" and case.shape[1] >= MANY_ROWS_WIDTH]
    some = min(wide, key=lambda case: case.shape[1], default=None)
    if some is None:
        return []
    times = MANY_ELEMENTS // some.x.size + 1
    return [replace(some.tiled(times), why=f"{some.why}, its rows {times} times")]


def non_finite(case: Case, random: np.random.Generator) -> Iterator[Case]:
    """Yield a case with one NaN in x, and one with an infinity."""
    once = case.part(slice(case.shape[0] // case.repeats))
    for number in (np.nan, random.choice([-np.inf, np.inf])):
        x, place = once.x.copy(), int(random.integers(once.x.size))
        x.flat[place] = number
        why = f"an element of x is {number}"
        made = replace(once.with_inputs(x=x), kind="special", family="non-finite", why=why)
        yield made.tiled(case.repeats)


def hidden(case: Case, random: np.random.Generator) -> Case:
    """Permute the rows and columns of a case, and flip signs, so that its answers are not known.

    It stays as hard: sums have the same terms, and a change of sign changes no rounding. So a
    case of units or channels stays as it is but for the order of its rows.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> case = tv.case("float32-mean-1449")
    >>> other = hidden(case, generator(7))
    >>> sorted(abs(other.x[0])) == sorted(abs(case.x[0]))
    True
    >>> bool((other.x == case.x).all())
    False
    """
    once, size = case.part(slice(case.shape[0] // case.repeats)), case.shape[1]
    order = random.permutation(once.shape[0])
    if case.family == NEXT_TO_MIDPOINTS and len(order) > size:
        order = order[:MIDPOINT_ROWS]  # each row has such a result
    columns = np.arange(size) if case.layout.startswith(AS_SHAPE) else random.permutation(size)
    sign, sign_of_gradients = random.choice([-1, 1], 2)
    signs = dict.fromkeys(case.operation.inputs_of("gradient"), sign_of_gradients)
    signs |= dict.fromkeys(("x", "residual", "beta"), sign)
    inputs: dict[str, Array | None] = {}
    for name, array in once.inputs.items():
        if array is None or name in case.operation.inputs_of("setting"):
            inputs[name] = array
            continue
        rows = array[order] if name in once.rows else array
        moved = rows[..., columns] if array.shape[-1] == size else rows
        # NumPy returns selected columns in another order of memory.
        inputs[name] = np.ascontiguousarray(moved * array.dtype.type(signs.get(name, 1)))
    return once.with_inputs(**inputs).tiled(case.repeats)


def is_scored(case: Case, largest: float) -> bool:
    """Return True for a case of reasonable size whose parameters are not all 1 and 0."""
    size = case.x.size
    if size > MOST_IN_A_CALL or size > MOST_ELEMENTS * case.repeats or case.family in LEFT_OUT:
        return False
    rows = [case.rows[name].astype(np.float64) for name in case.operation.inputs_of("data")]
    numbers = np.abs(np.concatenate(rows))
    parameters = [each for name, each in case.inputs.items() if name in ("gamma", "beta")]
    plain = all(each is None or bool(((each == 0) | (each == 1)).all()) for each in parameters)
    return not plain and float(numbers[np.isfinite(numbers)].max(initial=0.0)) <= largest
