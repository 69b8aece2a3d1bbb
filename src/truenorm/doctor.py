"""Examine an installation: versions, backends, processor, self-tests, and devices.

``truenorm doctor`` prints the diagnosis, ready to be pasted into an issue.
``python -m truenorm.doctor`` does the same with NumPy alone.
"""

import argparse
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

from truenorm.api import backends
from truenorm.api.arguments import rounding_of, threads_of
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.api.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.api.settings import check_arithmetic, variables
from truenorm.threads import MOST_THREADS, omp_num_threads, thread_count
from truenorm.tools import strict_json
from truenorm.tools.command_line import run_command
from truenorm.tools.command_texts import DOCTOR
from truenorm.tools.machine import describe, package_version, today
from truenorm.tools.progress import Progress, with_callback
from truenorm.tools.text import duration, one_line, without_home
from truenorm.verify import Subject, verify
from truenorm.verify.operations import OUTPUTS
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import conclusion
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS, dtype_of

Array = NDArray[Any]


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
        more = {"problems": self.problems, "sections": sections}
        return {"healthy": self.healthy, **vars(self), **more}


PACKAGES = {
    "numpy": ("numpy", "everything", ""),
    "pyopencl": ("pyopencl", "graphics processors", "opencl"),
    "cuda-core": ("cuda", "arrays on cards of NVIDIA", "cuda"),
    "ml_dtypes": ("ml_dtypes", "bfloat16", "verify"),
    "python-flint": ("flint", "proofs of gradients", "verify"),
    "typer": ("typer", "the command truenorm", "verify"),
    "rich": ("rich", "the command truenorm", "verify"),
    "matplotlib": ("matplotlib", "--html", "verify"),
    "jinja2": ("jinja2", "--html", "verify"),
}
"""Import name, purpose, and the extra of truenorm that installs the package."""


def versions() -> Section:
    """Return the versions of truenorm, Python and all optional packages."""
    here = describe("truenorm", "python", "system")
    here["python"] = f"{platform.python_implementation()} {here['python']}"
    for name, (module, purpose, extra) in PACKAGES.items():
        here[name] = package_version(name).replace("not installed", "installed, version unknown")
        if find_spec(module) is None:
            install = f"pip install 'truenorm[{extra}]'"
            here[name] = f"not installed; it is for {purpose}: {install}"
    return Section("Versions", tuple(Line(*each) for each in here.items()))


def usable_backends() -> list[str]:
    """Return the names of usable backends."""
    return [status.name for status in backends.backends() if status.usable]


def backend_lines() -> Section:
    """Return all backends, and the defaults of a call; an invalid variable is a problem."""
    lines = [
        Line(status.name, ("usable: " if status.usable else "not usable: ") + status.reason)
        for status in backends.backends()
    ]
    usable, wanted = usable_backends(), os.environ.get("TRUENORM_BACKEND")
    taken = (
        f"{wanted}, by TRUENORM_BACKEND" if wanted else f"{usable[0]}, the first that is usable"
    )
    remedy = f"unset TRUENORM_BACKEND, or set it to {' or '.join(usable)}"
    lines.append(Line("taken", taken, remedy if wanted and wanted not in usable else ""))
    for name, setting, accepted in (
        ("threads", _threads, f"an integer from 1 to {MOST_THREADS}"),
        ("rounding", _rounding, "correct or fast"),
    ):
        try:
            lines.append(Line(name, setting()))
        except ValueError:
            variable = f"TRUENORM_{name.upper()}"
            remedy = f"unset {variable}, or set it to {accepted}"
            lines.append(Line(name, f"{variable} is {os.environ[variable]!r}", remedy))
    return Section("Backends", tuple(lines))


def _threads() -> str:
    count = thread_count(threads_of(None, variables().threads))
    if os.environ.get("TRUENORM_THREADS"):
        why = "by TRUENORM_THREADS"
    elif omp_num_threads():
        why = "by OMP_NUM_THREADS"
    else:
        why = "one for each core that this process may use"
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
    arithmetic = Line("arithmetic", "rounded to nearest, with subnormal numbers")
    try:
        check_arithmetic()
    except RuntimeError as error:
        arithmetic = Line("arithmetic", "not IEEE's", str(error))
    lines = Line("features", features + (f"; not {missing}" if missing else "")), arithmetic
    return Section("Processor", lines)


REPORT = "please report this with all lines above"
DIFFERENT = f"{REPORT}; until then use another backend"
OVERRIDES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
PASSED = ("correct", "PASS", "not tested")
"""How the result of a test begins; any other is a problem."""


def error_text(error: Exception) -> str:
    """Return the message of an error without the home folder."""
    return without_home(f"{type(error).__name__}: {error}")


def _section(title: str, lines: Iterable[Line]) -> Section:
    """Evaluate the lines of a test without environment variables, and time it."""
    started = time.perf_counter()
    overrides = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        evaluated = tuple(lines)
    finally:
        os.environ.update(overrides)
    return Section(title, evaluated, time.perf_counter() - started)


def _tested(
    name: str, test: Callable[[], str], dtype: str = "float32", remedy: str = REPORT
) -> Line:
    """Return the result of a test."""
    try:
        dtype_of(dtype)
    except ValueError as error:  # its package is missing
        return Line(name, f"not tested: {error}")
    try:
        value = test()
    except Exception as error:  # an installation or a driver can fail in any way
        value = f"FAILED: {error_text(error)}"
    return Line(name, value, "" if value.startswith(PASSED) else remedy)


INSTALL = (
    "pip install 'truenorm[opencl]', and a driver with OpenCL by the maker of the card; without a "
    "card, PoCL computes on the processor (Debian: apt-get install pocl-opencl-icd)"
)
CUDA_NEEDS = "not looked at: arrays on a card of NVIDIA need CuPy and truenorm[cuda]"


class Card(NamedTuple):
    """A device: its facts, and how to put arrays there and get them back."""

    interface: str
    is_gpu: bool
    types: tuple[str, ...]
    facts: tuple[Line, ...]
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]


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
    types = ("float16", "bfloat16", "float32")
    put = partial(cl_array.to_device, queue)
    return Card("OpenCL", is_gpu, types, facts, put, lambda array: array.get())


def by_cuda() -> Card | Line:
    """Return an NVIDIA card by CuPy, which has no bfloat16, or a line that says why not."""
    if find_spec("cupy") is None or find_spec("cuda") is None:
        return Line("CUDA", CUDA_NEEDS)
    try:
        import cupy

        runtime = cupy.cuda.runtime
        card, driver = runtime.getDeviceProperties(0), runtime.driverGetVersion()
    except Exception as error:  # CuPy raises many types without a card or a driver
        return Line("CUDA", f"no card: {error_text(error)}")
    facts = (
        Line("CUDA", f"{card['name'].decode()}, experimental"),
        Line("driver", f"of CUDA {driver // 1000}.{driver % 1000 // 10}"),
        Line("units", f"{card['multiProcessorCount']}, {card['totalGlobalMem'] / 1e9:.1f} GB"),
    )
    return Card("CUDA", True, ("float16", "float32"), facts, cupy.asarray, cupy.asnumpy)


SIZES = {True: (64, 1000, 4096), False: (1000,)}
"""Row lengths of the comparison. True is a GPU; on a processor a kernel compiles for a second."""
COMPARED = 2**13
"""Elements of x in a comparison."""


def devices(progress: Progress | None = None) -> list[Section]:
    """Find devices, and compare their bits with the reference backend."""
    cards = by_opencl(), by_cuda()
    lines = [line for each in cards for line in (each.facts if isinstance(each, Card) else [each])]
    sections = [Section("Devices", tuple(lines))]
    found = [each for each in cards if isinstance(each, Card)]
    return sections + [
        _section(f"Bits, {each.interface}", _bits(each, progress)) for each in found
    ]


def _bits(card: Card, progress: Progress | None) -> Iterator[Line]:
    types = with_callback(card.types, progress, lambda each: f"{each}, compiled the first time")
    for dtype in types:
        yield _tested(dtype, partial(_compare_bits, card, dtype), dtype, DIFFERENT)


def _compare_bits(card: Card, dtype: str) -> str:
    count = wrong = 0
    sizes = SIZES[card.is_gpu]
    for size, centred in product(sizes, (True, False)):
        arrays = _rows(size, COMPARED // size, dtype)
        answers = _passes(arrays, centred=centred, backend="reference")
        results = _passes([card.put(each) for each in arrays], centred=centred)
        for result, answer in zip(results, answers, strict=True):
            bits = f"u{answer.dtype.itemsize}"
            count += answer.size
            wrong += int((np.asarray(card.get(result)).view(bits) != answer.view(bits)).sum())
    scope = f"both norms, forward and backward, D = {', '.join(map(str, sizes))}"
    if wrong:
        return f"WRONG: {wrong:,} of {count:,} numbers ({scope})"
    return f"correct to the bit ({count:,} numbers, {scope})"


def _rows(size: int, count: int, dtype: str) -> list[Array]:
    """Return x with every other row far from zero, dy, gamma and beta."""
    random = np.random.default_rng(size)
    x, dy = random.standard_normal((2, count, size), np.float32)
    x[::2] += 100
    arrays = x, dy, *random.standard_normal((2, size), np.float32)
    return [each.astype(dtype_of(dtype)) for each in arrays]


def _passes(arrays: list[Any], *, centred: bool, **options: Any) -> list[Any]:
    """Return y, dx, dgamma and, for layer norm, dbeta."""
    x, dy, gamma, beta = arrays
    if centred:
        y, saved = layer_norm_forward(x, gamma, beta, **options)
        return [y, *layer_norm_backward(dy, saved, **options)]
    y, saved = rms_norm_forward(x, gamma, **options)
    return [y, *rms_norm_backward(dy, saved, **options)[:2]]


CASES = ("normal-4x67", "offset-100-4x67", "exact-tie", "one-ulp-off", "two-elements", "nan-in-x")
"""Cases of the judge: ordinary rows, cancellation, a tie, and NaN."""
UNTESTED = Section("Self-test", (Line("not run", "the arithmetic of this process is not IEEE's"),))


def examine(
    *, full: bool = False, gpu: bool = False, progress: Progress | None = None
) -> Diagnosis:
    """Examine the installation of truenorm, and test it.

    With `full`, also judge truenorm on the quick level, gradients included. With `gpu`, examine
    graphics processors instead, or with `full` in addition. `progress` is called with the number
    of finished steps, the number of all, and the next one.

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
        sections.append(judgement(progress))
    if gpu:
        sections += devices(progress)
    return Diagnosis(today(), full, tuple(sections), gpu)


def self_test(progress: Progress | None = None) -> Section:
    """Compare a few results of each backend and type with the exact answers, bit by bit.

    The gpu backend is left to `devices`: each case would need a compilation.
    """
    names = [name for name in usable_backends() if name != "gpu"]
    jobs = with_callback(list(product(names, FORMATS)), progress, ", ".join)
    lines = (_tested(", ".join(job), partial(_compare_outputs, *job), job[1]) for job in jobs)
    return _section("Self-test", lines)


def _compare_outputs(backend: str, dtype: str) -> str:
    wrong = []
    for each in (case(f"{dtype}-{name}") for name in CASES):
        y, saved = layer_norm_forward(each.x, each.gamma, each.beta, eps=each.eps, backend=backend)
        results = (y, *layer_norm_backward(each.dy, saved, backend=backend))
        answers = [expected(each).values[name] for name in OUTPUTS]
        wrong += [
            f"{name} of {each.name}"
            for name, result, answer in zip(OUTPUTS, results, answers, strict=True)
            if result is None or answer is None or result.tobytes() != answer.tobytes()
        ]
    if wrong:
        return f"WRONG: {'; '.join(wrong)}"
    return f"correct to the bit ({len(CASES)} cases, forward and backward)"


def judgement(progress: Progress | None = None) -> Section:
    """Judge truenorm on the quick level: every grade must be ``correct``."""
    lines = (_tested(dtype, partial(_judge, dtype, progress), dtype) for dtype in FORMATS)
    return _section("Judge, quick level", lines)


def _judge(dtype: str, progress: Progress | None) -> str:
    subject = Subject(_forward, layer_norm_backward, name=f"truenorm, {dtype}", dtypes=[dtype])
    report = verify(subject, require="correct", strict=True, progress=progress)
    if report.passed:
        return f"correct: y, dx, dgamma and dbeta of {report.cases} cases"
    symptoms = "; ".join(f"{each.symptom} ({each.case})" for each in report.findings[:3])
    return without_home(f"WRONG: {conclusion(report)} {symptoms}")


def _forward(x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Any, Any]:
    return layer_norm_forward(x, gamma, beta, eps=eps)


WIDTH = 20
"""Width of the column of names."""


def report_text(diagnosis: Diagnosis, *, json: bool) -> str:
    """Return the diagnosis as JSON, or as a Markdown block for an issue."""
    if json:
        return strict_json.dumps(diagnosis.as_dict())
    options = {" --full": diagnosis.full, " --gpu": diagnosis.gpu}
    command = "truenorm doctor" + "".join(name for name, chosen in options.items() if chosen)
    return "\n".join(["```text", f"{command}, {diagnosis.date}", *_lines(diagnosis), "```"])


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    for section in diagnosis.sections:
        seconds = "" if section.seconds is None else f" ({duration(section.seconds)})"
        yield f"\n{section.title}{seconds}"
        for line in section.lines:
            yield f"  {line.name:{WIDTH}s}{one_line(line.value)}"
            if line.remedy:
                yield f"  {'':{WIDTH}s}-> {one_line(line.remedy)}"
    if diagnosis.healthy:
        yield "\nHEALTHY: nothing is wrong."
        return
    names = [line.name for line in diagnosis.problems]
    things = "1 thing is" if len(names) == 1 else f"{len(names)} things are"
    yield f"\nPROBLEM: {things} wrong ({', '.join(names)}); the lines with -> say what to do."


def main(argv: list[str] | None = None) -> None:
    """Run ``truenorm doctor`` without Typer and Rich; exit with its code."""
    program = "python -m truenorm.doctor"
    parser = argparse.ArgumentParser(
        prog=program,
        description=DOCTOR.for_program(program),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for name, text in DOCTOR.options.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    options = parser.parse_args(argv)
    diagnosis = examine(full=options.full, gpu=options.gpu)
    print(report_text(diagnosis, json=options.json))
    raise SystemExit(0 if diagnosis.healthy else 1)


if __name__ == "__main__":
    run_command(main)
