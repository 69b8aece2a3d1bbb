"""The input that shows a wrong kernel: the smallest of the judge's cases on which it fails."""

from collections.abc import Iterator, Sequence

from truenorm.verify.audit.kernel import Kernel
from truenorm.verify.audit.report import Witness
from truenorm.verify.grading.reproducer import Origin
from truenorm.verify.judge import graded
from truenorm.verify.operation import Case
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.norms.recipes import tells_recipes
from truenorm.verify.runs.calls import Call
from truenorm.verify.runs.runners import runner_for
from truenorm.verify.subject import Subject
from truenorm.verify.suite import cases

__all__ = ["witness_for"]

ELEMENTS = 2**15
"""Of the largest case that is tried: many rows, and long ones."""


def witness_for(kernel: Kernel, dtypes: Sequence[str]) -> Witness | None:
    """Return an input of one of these types on which a kernel is not stable; None if none is."""
    by_bits = kernel.planted is not None and kernel.planted.by_bits
    for case in _suite(kernel.norm, dtypes):
        if by_bits and not tells_recipes(case.dtype):
            continue
        subject = Subject(
            kernel.forward,
            kernel.backward,
            dtypes=[case.dtype],
            operation=kernel.norm,
            recipe=kernel.recipe if by_bits else "",
        )
        records = [runner_for(subject).run(case, Call())]
        report = graded(subject, [case], records, Origin.of(subject))
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
