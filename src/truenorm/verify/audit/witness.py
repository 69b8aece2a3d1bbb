"""Which wrong kernels can be told from the right one: in some tests, and on which input."""

from collections.abc import Iterator, Sequence

from truenorm.verify.audit.kernel import Kernel
from truenorm.verify.audit.planted import Planted
from truenorm.verify.audit.report import Witness
from truenorm.verify.audit.seen import Seen
from truenorm.verify.audit.task import Task
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

__all__ = ["told_apart", "witness_for"]

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
    narrow = any(map(tells_recipes, seen.dtypes))
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
    dtype = next(filter(tells_recipes, seen.dtypes), seen.dtypes[0])
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
