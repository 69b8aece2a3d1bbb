"""Examine an installation: versions, backends, processor, self-tests, and devices.

``truenorm doctor`` prints the diagnosis, ready to be pasted into an issue.
"""

import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from truenorm import textbook
from truenorm.api import backends
from truenorm.api.arguments import rounding_of, threads_of
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.api.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.api.settings import check_arithmetic, variables
from truenorm.gradient_check import GradientCheck, gradcheck
from truenorm.threads import thread_count
from truenorm.tools.machine import Stopwatch, describe, package_version, today
from truenorm.tools.progress import Progress, with_callback
from truenorm.tools.text import duration, one_line, without_home
from truenorm.verify import Subject, verify
from truenorm.verify.operation import Case
from truenorm.verify.operations import OUTPUTS
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import conclusion
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS, dtype_of


@dataclass(frozen=True)
class Line:
    """One examined fact; `remedy` is set if it is a problem."""

    name: str
    value: str
    remedy: str = ""


@dataclass(frozen=True)
class Section:
    """Lines of one subject, and the seconds of a test."""

    title: str
    lines: tuple[Line, ...]
    seconds: float | None = None

    @property
    def problems(self) -> list[Line]:
        """The lines with a remedy."""
        return [line for line in self.lines if line.remedy]


@dataclass(frozen=True)
class Diagnosis:
    """All sections, the date, and the options of the examination."""

    date: str
    full: bool
    sections: tuple[Section, ...]
    gpu: bool = False

    @property
    def problems(self) -> list[Line]:
        """The problems of all sections."""
        return [line for section in self.sections for line in section.problems]

    @property
    def healthy(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        sections = {
            each.title: {"seconds": each.seconds, "lines": each.lines} for each in self.sections
        }
        options = {"date": self.date, "full": self.full, "gpu": self.gpu}
        return {
            "healthy": self.healthy,
            **options,
            "problems": self.problems,
            "sections": sections,
        }


PACKAGES = {
    "numpy": ("numpy", "everything", ""),
    "pyopencl": ("pyopencl", "graphics processors", "opencl"),
    "cuda-core": ("cuda", "arrays on cards of NVIDIA", "cuda"),
    "ml_dtypes": ("ml_dtypes", "bfloat16", "verify"),
    "python-flint": ("flint", "proofs of gradients", "verify"),
    "typer": ("typer", "this command", "verify"),
    "rich": ("rich", "this command", "verify"),
    "matplotlib": ("matplotlib", "--png and --html", "verify"),
    "jinja2": ("jinja2", "--html", "verify"),
}
"""Import name, purpose, and the extra of truenorm that installs the package."""


def error_text(error: Exception) -> str:
    """Return the message of an error without the home folder."""
    return without_home(f"{type(error).__name__}: {error}")


def versions() -> Section:
    """Return the versions of truenorm, Python and all optional packages."""
    here = describe("truenorm", "python", "system")
    here["python"] = f"{platform.python_implementation()} {here['python']}"
    here |= {name: _version(name, *how) for name, how in PACKAGES.items()}
    return Section("Versions", tuple(Line(*each) for each in here.items()))


def _version(name: str, module: str, purpose: str, extra: str) -> str:
    if find_spec(module) is None:
        return f"not installed; it is for {purpose}: pip install 'truenorm[{extra}]'"
    version = package_version(name)
    return "installed, of unknown version" if version == "not installed" else version


def usable_backends() -> list[str]:
    """Return the names of usable backends."""
    return [status.name for status in backends.backends() if status.usable]


def backend_lines() -> Section:
    """Return all backends, and the defaults of a call."""
    lines = [
        Line(status.name, ("usable: " if status.usable else "not usable: ") + status.reason)
        for status in backends.backends()
    ]
    threads = _setting("threads", _threads, "a whole number of at least 1")
    rounding = _setting("rounding", _rounding, "correct or fast")
    return Section("Backends", (*lines, _chosen(), threads, rounding))


def _chosen() -> Line:
    wanted, usable = os.environ.get("TRUENORM_BACKEND"), usable_backends()
    if not wanted:
        return Line("taken", f"{usable[0]}, the first that is usable")
    remedy = f"unset TRUENORM_BACKEND, or set it to {' or '.join(usable)}"
    return Line("taken", f"{wanted}, by TRUENORM_BACKEND", "" if wanted in usable else remedy)


def _setting(name: str, value: Callable[[], str], accepted: str) -> Line:
    """Return a setting; an invalid environment variable is a problem."""
    variable = f"TRUENORM_{name.upper()}"
    try:
        return Line(name, value())
    except ValueError:
        remedy = f"unset {variable}, or set it to {accepted}"
        return Line(name, f"{variable} is {os.environ[variable]!r}", remedy)


def _threads() -> str:
    count = thread_count(threads_of(None, variables().threads))
    omp = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    why = "one for each core that this process may use"
    if os.environ.get("TRUENORM_THREADS"):
        why = "by TRUENORM_THREADS"
    elif omp == str(count):
        why = "by OMP_NUM_THREADS"
    return f"{count}, {why}; of {os.cpu_count()} cores"


def _rounding() -> str:
    chosen = variables().rounding
    if chosen is None:
        return "correct, unless a call asks for fast"
    return f"{rounding_of(chosen)} in every call, by TRUENORM_ROUNDING"


def processor() -> Section:
    """Return NumPy's vector instructions, and whether arithmetic follows IEEE 754."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    features = ", ".join([*simd.get("baseline", []), *simd.get("found", [])])
    missing = ", ".join(simd.get("not found", []))
    lines = [Line("features", features + (f"; not {missing}" if missing else ""))]
    try:
        check_arithmetic()
        lines.append(Line("arithmetic", "rounded to nearest, with subnormal numbers"))
    except RuntimeError as error:
        lines.append(Line("arithmetic", "not IEEE's", str(error)))
    return Section("Processor", tuple(lines))


INSTALL = (
    "pip install 'truenorm[opencl]', and a driver with OpenCL by the maker of the card; without a "
    "card, PoCL computes on the processor (Debian: apt-get install pocl-opencl-icd)"
)
CUDA_NEEDS = "not looked at: arrays on a card of NVIDIA need CuPy and truenorm[cuda]"


class Card(NamedTuple):
    """A device and its array functions."""

    interface: str
    is_gpu: bool
    types: tuple[str, ...]
    facts: tuple[Line, ...]
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]
    copy: Callable[[Any], Any]
    wait: Callable[[], object]


def by_opencl() -> Card | Line:
    """Return the device of the gpu backend, or a line that says why there is none."""
    status = next(each for each in backends.backends() if each.name == "gpu")
    if not status.usable:
        return Line("OpenCL", f"no device: {status.reason}", INSTALL)
    import pyopencl as cl
    import pyopencl.array as cl_array

    from truenorm.kernels.gpu.opencl import default_runtime

    queue = default_runtime().queue
    device = queue.device
    is_gpu = bool(device.type & cl.device_type.GPU)
    facts = (
        Line("OpenCL", device.name.strip() + ("" if is_gpu else ": this is no GPU")),
        Line("driver", f"{device.platform.name.strip()}, {device.driver_version}"),
        Line("version", device.version.strip()),
        Line("units", f"{device.max_compute_units}, {device.global_mem_size / 1e9:.1f} GB"),
    )
    return Card(
        interface="OpenCL",
        is_gpu=is_gpu,
        types=("float16", "bfloat16", "float32"),
        facts=facts,
        put=lambda array: cl_array.to_device(queue, array),
        get=lambda array: array.get(),
        copy=lambda array: array.copy(),
        wait=queue.finish,
    )


def by_cuda() -> Card | Line:
    """Return an NVIDIA card by CuPy, which has no bfloat16, or a line that says why not."""
    if find_spec("cupy") is None or find_spec("cuda") is None:
        return Line("CUDA", CUDA_NEEDS)
    try:
        import cupy

        properties = cupy.cuda.runtime.getDeviceProperties(0)
        driver = cupy.cuda.runtime.driverGetVersion()
    except Exception as error:  # CuPy raises many types without a card or a driver
        return Line("CUDA", f"no card: {error_text(error)}")
    facts = (
        Line("CUDA", f"{properties['name'].decode()}, experimental"),
        Line("driver", f"of CUDA {driver // 1000}.{driver % 1000 // 10}"),
        Line(
            "units",
            f"{properties['multiProcessorCount']}, {properties['totalGlobalMem'] / 1e9:.1f} GB",
        ),
    )
    return Card(
        interface="CUDA",
        is_gpu=True,
        types=("float16", "float32"),
        facts=facts,
        put=cupy.asarray,
        get=cupy.asnumpy,
        copy=lambda array: array.copy(),
        wait=cupy.cuda.runtime.deviceSynchronize,
    )


SIZES, TIMED_SIZES, ELEMENTS = (64, 1000, 4096), (1024, 4096, 16384), 2**25
"""Row lengths of the comparison and of the timing; elements of the timing."""
FEWER_SIZES, FEWER_TIMED, FEWER_ELEMENTS = (1000,), (1024,), 2**18
"""The same for a CPU device, where a kernel compiles for a second."""
COMPARED, ROUNDS = 2**13, 9
"""Elements of x in a comparison; rounds of the timing."""
DIFFERENT = "please report this with all lines above; until then use another backend"

Array = NDArray[Any]
Results = list[Any]


def devices(progress: Progress | None = None) -> list[Section]:
    """Find devices, compare their bits with the reference backend, and time them."""
    cards: list[Card] = []
    lines: list[Line] = []
    for each in (by_opencl(), by_cuda()):
        if isinstance(each, Card):
            cards.append(each)
            lines += each.facts
        else:
            lines.append(each)
    sections = [Section("Devices", tuple(lines))]
    for card in cards:
        sections.append(_timed(f"Bits, {card.interface}", _bits(card, progress)))
        sections.append(_timed(f"Speed, {card.interface}", _speed(card, progress)))
    return sections


def _timed(title: str, lines: Iterator[Line]) -> Section:
    started = time.perf_counter()
    evaluated = tuple(lines)
    return Section(title, evaluated, time.perf_counter() - started)


def _bits(card: Card, progress: Progress | None) -> Iterator[Line]:
    sizes = SIZES if card.is_gpu else FEWER_SIZES
    for dtype in with_callback(
        card.types, progress, lambda each: f"{each}, compiled the first time"
    ):
        try:
            compared = [
                _same_bits(card, _rows(size, COMPARED // size, dtype), centred=centred)
                for size, centred in product(sizes, (True, False))
            ]
        except Exception as error:  # a driver can fail in any way
            yield Line(dtype, f"FAILED: {error_text(error)}", DIFFERENT)
            continue
        count, wrong = (sum(each) for each in zip(*compared, strict=True))
        widths = ", ".join(map(str, sizes))
        if wrong:
            yield Line(dtype, f"WRONG: {wrong:,} of {count:,} numbers (D = {widths})", DIFFERENT)
        else:
            scope = f"{count:,} numbers, both norms, forward and backward, D = {widths}"
            yield Line(dtype, f"correct to the bit ({scope})")


def _rows(size: int, count: int, dtype: str) -> list[Array]:
    """Return x with every other row far from zero, dy, gamma and beta."""
    random = np.random.default_rng(size)
    x, dy = random.standard_normal((2, count, size), np.float32)
    x[::2] += 100
    arrays = x, dy, *random.standard_normal((2, size), np.float32)
    return [each.astype(dtype_of(dtype)) for each in arrays]


def _same_bits(card: Card, arrays: list[Array], *, centred: bool) -> tuple[int, int]:
    """Return the number of results, and how many differ from the reference backend."""
    answers = _passes(arrays, centred=centred, backend="reference")
    results = _passes([card.put(each) for each in arrays], centred=centred)
    pairs = [
        (_bits_of(np.asarray(card.get(result))), _bits_of(answer))
        for result, answer in zip(results, answers, strict=True)
    ]
    return sum(each.size for _, each in pairs), sum(int((a != b).sum()) for a, b in pairs)


def _bits_of(array: Array) -> Array:
    return array.view(f"u{array.dtype.itemsize}")


def _passes(arrays: Results, *, centred: bool, **options: Any) -> Results:
    """Return y, dx, dgamma and, for layer norm, dbeta."""
    x, dy, gamma, beta = arrays
    if centred:
        y, saved = layer_norm_forward(x, gamma, beta, **options)
        return [y, *layer_norm_backward(dy, saved, **options)]
    y, saved = rms_norm_forward(x, gamma, **options)
    return [y, *rms_norm_backward(dy, saved, **options)[:2]]


def _speed(card: Card, progress: Progress | None) -> Iterator[Line]:
    if not card.is_gpu:
        yield Line("a processor", "this is no GPU, and these are no times of one")
    types = [each for each in card.types if each != "float16"]
    jobs = list(product(types, TIMED_SIZES if card.is_gpu else FEWER_TIMED))
    for dtype, size in with_callback(jobs, progress, lambda job: f"{job[0]}, rows of {job[1]}"):
        elements = ELEMENTS if card.is_gpu else FEWER_ELEMENTS
        try:
            watch = _time_passes(
                card, [card.put(each) for each in _rows(size, elements // size, dtype)]
            )
        except Exception as error:
            yield Line(f"{dtype}, {size}", f"FAILED: {error_text(error)}", DIFFERENT)
            continue
        copied = watch.p50("copy")
        rate = 2 * elements * dtype_of(dtype).itemsize / copied / 1e9
        times = "; ".join(
            f"{mode} {watch.ratio(f'{mode} forward', 'copy'):.2f} forward, "
            f"{watch.ratio(f'{mode} backward', 'copy') / 1.5:.2f} backward"
            for mode in ("correct", "fast")
        )
        yield Line(f"{dtype}, {size}", f"{times}; a copy {copied * 1e3:.3g} ms, {rate:.0f} GB/s")


def _time_passes(card: Card, arrays: Results) -> Stopwatch:
    """Time a copy of x and both passes of layer norm in both modes, in turns."""
    x, dy, gamma, beta = arrays
    calls: dict[str, Callable[[], object]] = {"copy": lambda: card.copy(x)}
    for mode in ("correct", "fast"):
        forward = partial(layer_norm_forward, x, gamma, beta, rounding=mode)
        calls[f"{mode} forward"] = forward
        calls[f"{mode} backward"] = partial(layer_norm_backward, dy, forward()[1])
    # With the wait, or the next contestant would pay for this one.
    waiting = {name: partial(_run_and_wait, card, call) for name, call in calls.items()}
    for call in waiting.values():
        call()
    watch = Stopwatch()
    for _ in range(ROUNDS):
        watch.go_round(waiting)
    return watch


def _run_and_wait(card: Card, call: Callable[[], object]) -> None:
    call()
    card.wait()


CASES = ("normal-4x67", "offset-100-4x67", "exact-tie", "one-ulp-off", "two-elements", "nan-in-x")
"""Cases of the judge: ordinary rows, cancellation, a tie, and NaN."""
OVERRIDES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
REPORT = "please report this with all lines above"
UNTESTED = Section("Self-test", (Line("not run", "the arithmetic of this process is not IEEE's"),))

Floats = np.ndarray[Any, Any]


def examine(
    *, full: bool = False, gpu: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """Examine the installation of truenorm, and test it.

    Parameters
    ----------
    full : bool
        Also check the gradients, and judge truenorm on the quick level.
    gpu : bool
        Examine graphics processors instead, or with `full` in addition: bits and speed.
    progress : callable, optional
        Called with the number of finished steps, the number of all, and the next one.

    Returns
    -------
    Diagnosis
        ``diagnosis.healthy``, ``diagnosis.problems``.

    Examples
    --------
    >>> from truenorm.doctor import examine
    >>> [section.title for section in examine().sections][:2]
    ['Versions', 'Backends']
    """
    sections = [versions(), backend_lines(), processor()]
    if sections[-1].problems:
        # The operations refuse to compute; further problems would only hide the cause.
        return Diagnosis(today(), full, (*sections, UNTESTED), gpu)
    if full or not gpu:
        sections.append(self_test(progress))
    if full:
        sections += [gradients(), judgement(progress)]
    if gpu:
        sections += devices(progress)
    return Diagnosis(today(), full, tuple(sections), gpu)


def _tested(title: str, lines: Iterable[Line]) -> Section:
    """Evaluate the lines of a test without environment variables, and time it."""
    started = time.perf_counter()
    overrides = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        evaluated = tuple(lines)
    finally:
        os.environ.update(overrides)
    return Section(title, evaluated, time.perf_counter() - started)


def _missing(dtype: str) -> str:
    """Return why a type is not available, or an empty text."""
    try:
        dtype_of(dtype)
    except ValueError as error:
        return str(error)
    return ""


def self_test(progress: Progress | None = None) -> Section:
    """Compare a few results of each backend and type with the exact answers, bit by bit.

    The gpu backend is left to `devices`: each case would need a compilation.
    """
    names = [name for name in usable_backends() if name != "gpu"]
    jobs = with_callback(list(product(names, FORMATS)), progress, ", ".join)
    return _tested("Self-test", (_self_test_line(*job) for job in jobs))


def _self_test_line(backend: str, dtype: str) -> Line:
    name = f"{backend}, {dtype}"
    if missing := _missing(dtype):
        return Line(name, f"not tested: {missing}")
    try:
        chosen = [case(f"{dtype}-{each}") for each in CASES]
        wrong = [name for each in chosen for name in _wrong_outputs(each, backend)]
    except Exception as error:  # an installation can fail in any way
        return Line(name, f"FAILED: {error_text(error)}", REPORT)
    if wrong:
        return Line(name, f"WRONG: {'; '.join(wrong)}", REPORT)
    return Line(name, f"correct to the bit ({len(chosen)} cases, forward and backward)")


def _wrong_outputs(case: Case, backend: str) -> list[str]:
    """Return the outputs whose bits differ from the exact answer."""
    y, saved = layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps, backend=backend)
    results = (y, *layer_norm_backward(case.dy, saved, backend=backend))
    answers = [expected(case).values[name] for name in OUTPUTS]
    return [
        f"{name} of {case.name}"
        for name, result, answer in zip(OUTPUTS, results, answers, strict=True)
        if result is None or answer is None or result.tobytes() != answer.tobytes()
    ]


def gradients() -> Section:
    """Compare the backward passes of truenorm and the textbook with derivatives of forward."""
    passes: dict[str, Callable[..., Any]] = {
        "textbook": lambda dy, *inputs: textbook.backward(dy, textbook.forward(*inputs)[1]),
        "truenorm": lambda dy, *inputs: layer_norm_backward(dy, layer_norm_forward(*inputs)[1]),
    }
    return _tested("Gradient check", (_gradient_line(*each) for each in passes.items()))


def _formula(x: Floats, gamma: Floats, beta: Floats) -> Floats:
    """Return y by the textbook; the operation does not take numbers with derivatives."""
    return textbook.forward(x, gamma, beta)[0]


def _gradient_line(name: str, backward: Callable[..., Any]) -> Line:
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((4, 17)), *random.standard_normal((2, 17))]
    try:
        check: GradientCheck = gradcheck(_formula, backward, inputs)
    except Exception as error:
        return Line(name, f"FAILED: {error_text(error)}", REPORT)
    value = f"{check.verdict}, by {check.method}: error {check.error:.1e} of {check.tol:.0e}"
    return Line(name, value, "" if check else REPORT)


def judgement(progress: Progress | None = None) -> Section:
    """Judge truenorm on the quick level: every grade must be ``correct``."""
    return _tested("Judge, quick level", (_judge_line(dtype, progress) for dtype in FORMATS))


def _judge_line(dtype: str, progress: Progress | None) -> Line:
    if missing := _missing(dtype):
        return Line(dtype, f"not judged: {missing}")
    subject = Subject(_forward, layer_norm_backward, name=f"truenorm, {dtype}", dtypes=[dtype])
    report = verify(subject, require="correct", progress=progress)
    if report.passed:
        return Line(dtype, f"correct: y, dx, dgamma and dbeta of {report.cases} cases")
    symptoms = "; ".join(f"{each.symptom} ({each.case})" for each in report.findings[:3])
    return Line(dtype, without_home(f"WRONG: {conclusion(report)} {symptoms}"), REPORT)


def _forward(x: Floats, gamma: Floats, beta: Floats, eps: float) -> tuple[Any, Any]:
    return layer_norm_forward(x, gamma, beta, eps=eps)


WIDTH = 20
"""Width of the column of names."""
TESTED = ("correct to the bit", "correct:", "PASS")
"""Prefixes of the values of passed tests."""


def to_text(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as a Markdown block."""
    title = f"{_command(diagnosis)}, {diagnosis.date}"
    return "\n".join(["```text", title, *(text for text, _ in _lines(diagnosis)), "```"])


def _command(diagnosis: Diagnosis) -> str:
    options = {" --full": diagnosis.full, " --gpu": diagnosis.gpu}
    return "truenorm doctor" + "".join(name for name, chosen in options.items() if chosen)


def show_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Print a diagnosis on a terminal."""
    for text, style in _lines(diagnosis):
        console.print(Text(text, style=style), soft_wrap=True)
    console.print(
        Text(f"To paste it into an issue: {_command(diagnosis)} > report.txt", style="dim")
    )


def _lines(diagnosis: Diagnosis) -> Iterator[tuple[str, str]]:
    """Yield each line and its style on a terminal."""
    for section in diagnosis.sections:
        seconds = "" if section.seconds is None else f" ({duration(section.seconds)})"
        yield f"\n{section.title}{seconds}", "bold"
        for line in section.lines:
            value = one_line(line.value)
            good = "green" if value.startswith(TESTED) else ""
            yield f"  {line.name:{WIDTH}s}{value}", "bold red" if line.remedy else good
            if line.remedy:
                yield f"  {'':{WIDTH}s}-> {one_line(line.remedy)}", ""
    yield f"\n{doctor_conclusion(diagnosis)}", "bold green" if diagnosis.healthy else "bold red"


def doctor_conclusion(diagnosis: Diagnosis) -> str:
    """Return the last line: healthy, or the names of the problems."""
    count = len(diagnosis.problems)
    if not count:
        return "HEALTHY: nothing is wrong."
    names = ", ".join(line.name for line in diagnosis.problems)
    things = "1 thing is" if count == 1 else f"{count} things are"
    return f"PROBLEM: {things} wrong ({names}); the lines with -> say what to do."
