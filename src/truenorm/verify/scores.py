"""A score of a kernel from 0 to 1, for programs that write kernels and are rewarded for them.

The cases are drawn by a seed that the writer does not know. The kernel runs in another process,
which has the inputs of one call and no answers. Cases, answers, copies of the inputs and the
comparison are in this process. `points` turns the report into a number.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from truenorm.verify.collecting import records_of
from truenorm.verify.grading.grades import grade
from truenorm.verify.grading.report import Report
from truenorm.verify.grading.symptoms import UNEXPLAINED
from truenorm.verify.judge import try_a_call
from truenorm.verify.operation import Case, Domain, Operation
from truenorm.verify.operations import as_operation
from truenorm.verify.oracle import forget
from truenorm.verify.running.records import CannotRunError, GaveUpError, Record
from truenorm.verify.running.scored import FailedCallError, Kernel, Server
from truenorm.verify.subject import Subject, in_another_process
from truenorm.verify.submission import (
    CASES,
    LARGEST,
    SECONDS,
    Form,
    Norms,
    Submission,
    draw_suite,
)

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
"""The largest score of a kernel that loses NaN and infinity: a model that has diverged then seems
sound."""


ORDINARY = ("ordinary", "sweep")
"""Kinds of cases that no honest kernel misses, but for their condition number."""
LISTED = 2
"""Calls whose operators are listed."""
NORMS = ("layer_norm", "rms_norm", "group_norm", "batch_norm", "instance_norm", "renorm")


@dataclass(frozen=True)
class Score:
    """The score of a kernel.

    Attributes
    ----------
    value : float
        From 0 to 1.
    reasons : tuple of str
        The reasons of a lower value, as sentences; the most important first.
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
    norms : tuple of str
        Norms of PyTorch among the operators that the process of the kernel lists. A kernel can
        hide operators.
    isolated : bool
        True if the kernel ran in separate namespaces: no network, and no other processes.
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
    norms: tuple[str, ...] = ()
    isolated: bool = False
    operation: Operation = field(kw_only=True, repr=False)


def score(
    target: str,
    operation: Operation | str = "layer_norm",
    *,
    seed: int,
    dtypes: Sequence[str] = ("float32",),
    python: str = sys.executable,
    norms: Norms = "allowed",
    cases: int = CASES,
    largest: float = LARGEST,
    form: Form = "functional",
    signature: str = "",
    backward: str = "",
    device: str = "cpu",
    seconds: float = SECONDS,
    causes: bool = False,
) -> Score:
    r"""Score a PyTorch kernel by what it computes on cases that are drawn. Linux only.

    A wrong number on a drawn case is seen. Behaviour is checked against mistakes, not against
    intent, and isolation is the task of the harness. Take the least score of several seeds. Most
    of the time is the import of PyTorch; ``truenorm score --serve`` imports it once.

    Parameters
    ----------
    target : str
        ``file.py:function`` or ``package.module:function``.
    operation : Operation or str
        What the kernel computes.
    seed : int
        Draws the cases: their widths, numbers and order. Keep the seed from the writer of the
        kernel, and change the seed from run to run.
    dtypes : sequence of str
        The types to judge.
    python : str
        The interpreter of an environment with PyTorch; it does not need truenorm.
    norms : str
        ``allowed``; or ``forbidden``: a kernel whose process lists a norm among the operators of
        PyTorch that it ran scores 0. A kernel can hide operators.
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
        Time limit of a call. The import and the first call, which may compile, have four times
        as much.
    causes : bool
        Also search for the likely causes of wrong results, which takes seconds.

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
    )
    with Server(python) as server:
        return score_submission(submission, server)


def score_submission(submission: Submission, server: Server) -> Score:
    """Score a submission: draw cases, call the kernel, and compare results with exact answers."""
    suite = draw_suite(submission)
    zero = Score(0.0, (), submission.target, submission.dtypes, operation=submission.operation)
    subject = Subject(
        in_another_process,
        in_another_process,
        name=submission.target,
        operation=submission.operation,
        dtypes=submission.dtypes,
        seconds=submission.seconds,
    )
    kernel = None
    try:
        kernel = Kernel(server, subject, submission.options(), suite)
        records = _run(kernel, suite)
        return _judged(submission, suite, records, kernel)
    except FailedCallError as error:
        return replace(zero, reasons=(f"It {str(error).rstrip('.')}.",))
    finally:
        if kernel is not None:
            kernel.close()
        forget(suite)


def _run(kernel: Kernel, suite: Sequence[Case]) -> list[Record]:
    """Return the records of all calls; after three deaths of the process, stop."""
    records: list[Record] = []
    with suppress(GaveUpError):
        try:
            records += try_a_call(kernel, suite)
        except CannotRunError as error:
            message = str(error).partition("\n")[0]
            raise FailedCallError(message.removeprefix(f"{kernel.subject.name} ")) from error
        for case in suite:
            records += records_of(kernel, case)
        for case in sorted(suite, key=lambda case: case.x.size)[:LISTED]:
            if not kernel.deaths:
                kernel.list_operators(case)
    return records


def _judged(
    submission: Submission, suite: Sequence[Case], records: Sequence[Record], kernel: Kernel
) -> Score:
    """Judge the results of a run."""
    report = grade(
        submission.target,
        suite,
        records,
        outputs=kernel.subject.outputs,
        spec=kernel.subject.spec(),
        domain=Domain(largest=submission.largest),
        strict=False,
        causes=submission.causes,
    )
    norms = tuple(sorted(each for each in kernel.operators if any(norm in each for norm in NORMS)))
    forbidden = submission.norms == "forbidden" and bool(norms)
    ordinary = ordinary_share(suite, report)
    reasons = [f"It calls {', '.join(norms)}, which is forbidden."] if forbidden else []
    return Score(
        0.0 if forbidden else points(report, ordinary),
        (*reasons, *_reasons(report)),
        submission.target,
        submission.dtypes,
        report.cases,
        ordinary,
        {
            dtype: {each.output: each.grade for each in report.grades if each.dtype == dtype}
            for dtype in submission.dtypes
        },
        report.verdicts,
        norms,
        kernel.isolated,
        operation=submission.operation,
    )


def points(report: Report, ordinary: float) -> float:
    """Return the score of a report, given the share of ordinary results that are right.

    A kernel that fails on ordinary input, raises or damages arrays gets at most 0.1. Checks other
    than accuracy count only above 0.1: zeros are repeatable.
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

    A missing result is not right. Rows with a mean count as well.
    """
    right = sum(
        each.kind in ORDINARY and each.needs < UNEXPLAINED
        for each in (*report.results, *report.results_beyond)
    )
    outputs = [each.dtype for each in report.grades]
    every = sum(outputs.count(case.dtype) for case in suite if case.kind in ORDINARY)
    return right / every if every else 0.0


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
