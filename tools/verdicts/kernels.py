"""The kernels of a fingerprint, in parts: what makes each one, and the cases that it is judged by.

A part is a function that returns its kernels; importing it imports no more than the part needs.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import truenorm.verify as tv
from truenorm.verify.collecting import collect, run_alone
from truenorm.verify.judge import grade_records, scope, try_a_call
from truenorm.verify.running.process import SubjectProcess
from truenorm.verify.running.records import Record, Runner
from truenorm.verify.running.runners import runner_for
from truenorm.verify.subject import SubjectSpec

Judged = tuple[tv.Report, Sequence[Record]]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MOST_ELEMENTS = 2**14
"""Elements of the cases that a kernel is judged by, if it has no table of its own."""
OF_MANY_CALLS = ("batch", "batch-sizes", "large", "many-rows", "repeated", "row-counts", "served")


class Kernel(NamedTuple):
    """A kernel, the operation whose exact answers it shares with others, and how it is judged."""

    name: str
    operation: str
    judge: Callable[[], Judged]


def small_cases(subject: tv.Subject, most: int = MOST_ELEMENTS) -> list[tv.Case]:
    """Return the cases of the quick level with few elements and few calls."""
    return [
        case
        for case in scope(subject, "quick")
        if case.first.size <= most and case.family not in OF_MANY_CALLS and not case.compared
    ]


def judged(
    make: Callable[[], tv.Subject],
    suite: Callable[[tv.Subject], Sequence[tv.Case]] = small_cases,
    *,
    strict: bool = True,
    runner: Callable[[tv.Subject], Runner] = runner_for,
) -> Judged:
    """Judge a subject by some of its cases, without a limit of time."""
    subject = make()
    cases = suite(subject)
    records = collect(runner(subject), cases)
    return _graded(subject, cases, records, strict=strict), records


def _graded(
    subject: tv.Subject, cases: Sequence[tv.Case], records: Sequence[Record], *, strict: bool
) -> tv.Report:
    domain = subject.required_domain(strict=strict)
    return grade_records(subject, cases, records, SubjectSpec(), domain=domain, strict=strict)


def kernel(name: str, make: Callable[[], tv.Subject], operation: str, **how: Any) -> Kernel:
    """Return a kernel that `judged` judges."""
    return Kernel(name, operation, partial(judged, make, **how))


def planted() -> Iterator[Kernel]:
    """Yield the planted bugs of plain norms and their variants."""
    from shared.verify.planted.registry import PLANTED
    from shared.verify.recorded import cases_for

    for name, bug in PLANTED.items():
        subject = bug.subject
        suite = partial(_cases_for, cases_for, name)
        yield kernel(name, partial(_itself, subject), _key(subject), suite=suite)


def _cases_for(cases_for: Callable[..., list[tv.Case]], name: str, _: Any) -> list[tv.Case]:
    return cases_for(name, "quick")


def _itself(subject: tv.Subject) -> tv.Subject:
    return subject


def _key(subject: tv.Subject) -> str:
    return f"{subject.operation.spec} {' '.join(subject.dtypes)}"


def right() -> Iterator[Kernel]:
    """Yield right kernels of plain norms, honest ones in float32, and their recipes."""
    from shared.verify.honest import DTYPES, HONEST
    from shared.verify.planted.registry import MORE_RIGHT
    from shared.verify.planted.right import RIGHT

    for name, subject in (RIGHT | MORE_RIGHT).items():
        yield kernel(name, partial(_itself, subject), _key(subject))
    for name, honest in HONEST.items():
        for dtype in DTYPES:
            make = partial(honest.subject, dtype)
            yield kernel(f"honest {name}, {dtype}", make, _key(make()), strict=False)


def unseen() -> Iterator[Kernel]:
    """Yield wrong kernels whose author had not seen the hypotheses."""
    from shared.verify.unseen.kernels import SUBJECTS

    for name, subject in SUBJECTS.items():
        yield kernel(name, partial(_itself, subject), _key(subject))


def grouped() -> Iterator[Kernel]:
    """Yield grouped, gated and modulated norms: planted, unseen and right."""
    from full.verify.grouped.test_planted import small_cases as cases_of_bug
    from full.verify.grouped.test_right_kernels import SPECS
    from shared.verify.grouped.kernels import HuggingFace, InFloat32, Textbook, few_cases
    from shared.verify.grouped.planted import PLANTED
    from shared.verify.grouped.unseen import UNSEEN

    for bug in PLANTED:
        suite = partial(_cases_of, cases_of_bug, bug)
        make = partial(getattr, bug, "subject")
        yield kernel(bug.name, make, bug.spec, suite=suite, strict=False)
    for k, wrong in enumerate(UNSEEN):
        make = partial(_subject, wrong.kernel, wrong.spec)
        name = f"unseen {k}: {wrong.kernel.__name__}, {wrong.spec}"
        yield kernel(name, make, wrong.spec, suite=few_cases, strict=False)
    for spec in SPECS:
        for of, dtype in ((Textbook, "float32"), (InFloat32, "float32"), (InFloat32, "bfloat16")):
            make = partial(_subject, of, spec, dtype)
            name = f"right {of.__name__}, {dtype}, {spec}"
            yield kernel(name, make, f"{spec} {dtype}", suite=few_cases, strict=False)
    spec = "rms_norm,gate=silu"
    make = partial(_subject, HuggingFace, spec, "bfloat16")
    yield kernel(f"right HuggingFace, {spec}", make, f"{spec} bfloat16", strict=False)


def _cases_of(cases: Callable[[Any], list[tv.Case]], bug: Any, _: Any) -> list[tv.Case]:
    return cases(bug)


def _subject(of: Any, spec: str, dtype: str = "float32") -> tv.Subject:
    from shared.verify.grouped.planted import grouped

    subject: tv.Subject = of(grouped(spec)).subject(dtype)
    return subject


def quantized() -> Iterator[Kernel]:
    """Yield quantized norms: planted, right and as engines compute them."""
    from full.verify.quantized.test_right_kernels import RIGHT, WRONG_FLOORS
    from shared.verify.quantized.engines import AITER_TRITON, ENGINES
    from shared.verify.quantized.kernels import Kernel as Quantized
    from shared.verify.quantized.kernels import quantized_norm
    from shared.verify.quantized.planted import PLANTED

    made: dict[str, Callable[[], tv.Subject]] = {
        name: partial(bug.kernel.subject, bug.dtype, recipe=bug.recipe)
        for name, bug in PLANTED.items()
    }
    made |= {
        f"right {spec}": Quantized(quantized_norm(spec), **how).subject
        for spec, (how, *_) in RIGHT.items()
    }
    engines = ENGINES | {"aiter's Triton kernel": AITER_TRITON}
    made |= {f"engine {name}": engine.kernel.subject for name, engine in engines.items()}
    int8 = quantized_norm("rms_norm,quant=int8,scale=per-token")
    made |= {
        f"floor: {name}": Quantized(int8, **how).subject for name, (how, _) in WRONG_FLOORS.items()
    }
    for name, make in made.items():
        yield kernel(name, make, _key(make()), suite=_quantized_cases, strict=False)


def _quantized_cases(subject: tv.Subject) -> list[tv.Case]:
    from shared.verify.quantized.kernels import suite_of

    return suite_of(subject.operation.spec, *subject.dtypes, calls=False)


def formulas() -> Iterator[Kernel]:
    """Yield kernels of the formulas that ship: honest ones and planted bugs."""
    from shared.verify.formulas import BUGS, KERNELS
    from truenorm.verify.formulas.shipped import SHIPPED

    for name, (forward, backward) in KERNELS.items():
        bugs = {"honest": (forward, backward)}
        bugs |= {
            bug: (wrong.forward or forward, wrong.backward or backward)
            for bug, wrong in BUGS[name].items()
        }
        for bug, passes in bugs.items():
            make = partial(_of_formula, passes, SHIPPED[name], name)
            suite = partial(small_cases, most=4200)
            yield kernel(f"{name}: {bug}", make, name, suite=suite, strict=False)


def _of_formula(passes: Any, operation: Callable[[], Any], name: str) -> tv.Subject:
    forward, backward = passes
    return tv.Subject(forward, backward, operation=operation(), name=name, dtypes=["float32"])


def programs() -> Iterator[Kernel]:
    """Yield the examples and a C program, each in a process of its own, and fatal kernels."""
    from shared.verify.planted.registry import FATAL

    for file, names in (
        ("verify/numpy_check.py", ("subject", "mended")),
        ("verify/rms_norm_check.py", ("subject",)),
        ("c/c_kernel_check.py", ("subject", "stable", "rms_norm")),
    ):
        for name in names:
            of_file = partial(_of_process, file, name)
            yield Kernel(f"{file}:{name}", file, of_file)
    for name, target in FATAL.items():
        yield Kernel(f"fatal: {name}", "fatal", partial(_judged_process, target, strict=True))


def _of_process(file: str, name: str) -> Judged:
    """Judge a subject of a copy of the examples, where the C programs are compiled."""
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "examples"
        shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy / file
        if target.parent.name == "c":
            make = ["make", "naive", "stable", "rms_norm"]
            subprocess.run(make, cwd=target.parent, check=True, capture_output=True)
        return _judged_process(f"{target}:{name}")


def _judged_process(
    target: str, most: int = MOST_ELEMENTS, *, strict: bool = False, **options: Any
) -> Judged:
    """Judge a subject as ``truenorm verify`` does, by small cases."""
    with SubjectProcess(target, strict=strict, **options) as process:
        subject = process.subject
        suite = small_cases(subject, most)
        records = [*try_a_call(process, suite), *collect(process, suite)]
        report = _graded(subject, suite, records, strict=strict)
        if subject.command is None:
            records += run_alone(process, suite, records, report.findings)
            report = _graded(subject, suite, records, strict=strict)
        return report, records


def pytorch() -> Iterator[Kernel]:
    """Yield kernels on tensors, right and wrong, of PyTorch and of the tests and examples."""
    import torch  # type: ignore[import-not-found]

    from needs_torch import kernels as own
    from needs_torch import quantized as of_codes
    from needs_torch.test_torch_subject import RIGHT, WRONG

    torch.set_num_threads(1)
    functional = torch.nn.functional

    def group_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return functional.group_norm(x, 4, weight, bias, eps)

    for name, function in (
        ("layer_norm", functional.layer_norm),
        ("rms_norm", functional.rms_norm),
        ("group_norm,groups=4", group_norm),
        ("rms_norm", own.rms_norm),
    ):
        for dtype in ("float32", "bfloat16"):
            label = f"{function.__module__}.{function.__name__}, {dtype}"
            yield _of_tensors(label, function, name, dtype)
    written = {name: ((*kernel,), "float32") for name, kernel in RIGHT.items()}
    written |= {f"wrong: {name}": ((*kernel,), "float32") for name, (kernel, _) in WRONG.items()}
    for name, ((function, operation, form), dtype) in written.items():
        yield _of_tensors(name, function, operation, dtype, form=form)
    for function, operation, form in (
        (of_codes.rms_norm_static_fp8_quant, "rms_norm,quant=e4m3fn", "out"),
        (of_codes.mxfp8, "rms_norm,quant=mxfp8", "functional"),
        (of_codes.layer_norm_int8, "layer_norm,quant=int8,nan=clamp", "functional"),
    ):
        yield _of_tensors(function.__name__, function, operation, "bfloat16", form=form)
    for file in (
        "verify/quantized_check.py:subject",
        "verify/quantized_check.py:mended",
        "verify/serving_check.py:serve",
        "verify/serving_check.py:train",
    ):
        yield Kernel(file, file, partial(_judged_process, str(EXAMPLES / file)))
    triton = Path(own.__file__).with_name("triton_bugs.py")
    for bug in ("right", "padding", "divisor", "one_pass"):
        yield Kernel(f"Triton: {bug}", "triton", partial(_interpreted, f"{triton}:{bug}"))


def _of_tensors(
    name: str, function: Any, operation: str, dtype: str, form: Any = "functional"
) -> Kernel:
    make = partial(
        tv.torch_subject, function, operation=operation, form=form, dtypes=[dtype], name=name
    )
    suite = partial(small_cases, most=2**12)
    return kernel(name, make, f"{operation} {dtype}", suite=suite, strict=False)


def _interpreted(target: str) -> Judged:
    """Judge a Triton kernel in a process where the interpreter of Triton runs it."""
    return _judged_process(target, most=2**10, environment={"TRITON_INTERPRET": "1"})


def recordings() -> Iterator[Kernel]:
    """Yield planted bugs whose calls are recorded, run from the recording, and then judged."""
    from needs_torch.replayed import replay
    from needs_torch.test_replayed import BUGS

    chosen = [name for name in sorted(BUGS) if name.startswith(("grouped", "quantized"))][::9]
    chosen += [name for name in sorted(BUGS) if not name.startswith(("grouped", "quantized"))][::9]
    for name in chosen:
        yield Kernel(name, "", partial(_recorded, BUGS[name], replay))


def _recorded(bug: Any, replay: Callable[..., Runner]) -> Judged:
    cases = bug.cases()
    with tempfile.TemporaryDirectory() as folder:
        runner = replay(bug.make(), cases, Path(folder) / "cases")
        records = [*try_a_call(runner, cases), *collect(runner, cases)]
        return _graded(runner.subject, cases, records, strict=True), records


PARTS: dict[str, Callable[[], Iterator[Kernel]]] = {
    each.__name__: each
    for each in (planted, right, unseen, grouped, quantized, formulas, programs, pytorch)
}
PARTS["recordings"] = recordings
NEED_TORCH = ("pytorch", "recordings")
"""Parts that are left out, with a message, where PyTorch is not installed."""
