"""Who puts a case to a subject: it depends on what the subject is."""

from collections.abc import Sequence

from truenorm.verify.operation import Case
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.in_process import InProcess
from truenorm.verify.running.process import CannotRunError
from truenorm.verify.running.records import Call, Record, Runner
from truenorm.verify.subject import Subject


def runner_for(subject: Subject) -> Runner:
    """Return what runs a subject from this process: its functions here, its command beside it."""
    return InProcess(subject) if subject.command is None else CommandRunner(subject)


USUAL = 64
"""A width that every kernel has."""


def try_a_call(subject: Subject, runner: Runner, suite: Sequence[Case]) -> list[Record]:
    """Put ordinary rows to a subject; raise CannotRunError if no type of them can be given.

    A crash or a hang may depend on the rows, and is a finding: its record is returned.
    """
    told = ""
    for dtype in subject.dtypes:
        usual = [case for case in suite if case.dtype == dtype and case.family == "normal"]
        if not usual:
            return []
        case = min(usual, key=lambda case: abs(case.shape[1] - USUAL))
        record = runner.run(case, Call())
        if not record.failure.startswith("raised "):
            return [record] if record.failure else []
        rows, size = case.shape
        told = told or f"{record.failure}, with {rows} rows of {size} in {dtype}"
    raise CannotRunError(
        f"{subject.name} cannot be called: it {told}.\nThe judge calls {signature(subject)}; "
        "--operation, or operation= of the subject, says that it is another one."
    )


def signature(subject: Subject) -> str:
    """Return how the functions of a subject are called, and what they return.

    Examples
    --------
    >>> signature(Subject(lambda x, gamma, beta, eps: x))
    'forward(x, gamma, beta, eps) -> y'
    """
    operation = subject.operation
    given = operation.inputs_of("data", "parameter")
    results = operation.outputs_of(backward=False)
    arguments = ", ".join([*given, *["eps"][: operation.takes_eps]])
    if subject.backward is None:
        found = ", ".join(results)
        return f"forward({arguments}) -> {found if len(results) == 1 else f'({found})'}"
    slopes = ", ".join([*operation.inputs_of("gradient"), "saved"])
    gradients = ", ".join(operation.outputs_of(backward=True))
    return (
        f"forward({arguments}) -> ({', '.join([*results, 'saved'])}) "
        f"and backward({slopes}) -> ({gradients})"
    )
