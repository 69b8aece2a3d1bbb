"""Examine an installation: versions, backends, processor, self-tests, and devices.

``truenorm doctor`` prints the diagnosis, ready to be pasted into an issue.
``python -m truenorm.doctor`` does the same with NumPy alone.
"""

import argparse
import os
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
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
from truenorm.tools.text import one_line, without_home
from truenorm.verify import Subject, verify
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import conclusion
from truenorm.verify.suite import case
from truenorm.verify.types import FORMATS, dtype_of

Array = NDArray[Any]


class Line(NamedTuple):
    """One examined fact; `remedy` is set if it is a problem."""

    name: str
    value: str
    remedy: str = ""


Lines = tuple[Line, ...]


@dataclass(frozen=True)
class Diagnosis:
    """The lines of all sections by title, the date, and the options of the examination."""

    date: str
    full: bool
    sections: Mapping[str, Lines]
    gpu: bool = False

    @property
    def problems(self) -> list[Line]:
        """The lines with a remedy."""
        return [line for lines in self.sections.values() for line in lines if line.remedy]

    @property
    def healthy(self) -> bool:
        """True if there is no problem."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        sections = {
            title: [line._asdict() for line in lines] for title, lines in self.sections.items()
        }
        problems = [line._asdict() for line in self.problems]
        more = {"problems": problems, "sections": sections}
        return {"healthy": self.healthy, **vars(self), **more}


PACKAGES = {
    "numpy": ("numpy", ""),
    "pyopencl": ("pyopencl", "opencl"),
    "cuda-core": ("cuda", "cuda"),
    **{name: (name, "verify") for name in ("ml_dtypes", "typer", "rich", "matplotlib", "jinja2")},
    "python-flint": ("flint", "verify"),
}
"""Import name, and the extra of truenorm that installs the package."""


def versions() -> Lines:
    """Return the versions of truenorm, Python and all optional packages."""
    here = describe("truenorm", "python", "system")
    here["python"] = f"{platform.python_implementation()} {here['python']}"
    for name, (module, extra) in PACKAGES.items():
        here[name] = package_version(name).replace("not installed", "installed, version unknown")
        if find_spec(module) is None:
            here[name] = f"not installed: pip install 'truenorm[{extra}]'"
    return tuple(Line(*each) for each in here.items())


def usable_backends() -> list[str]:
    """Return the names of usable backends."""
    return [status.name for status in backends.backends() if status.usable]


def backend_lines() -> Lines:
    """Return all backends, and the defaults of a call; an invalid variable is a problem."""
    lines = [
        Line(status.name, ("usable: " if status.usable else "not usable: ") + status.reason)
        for status in backends.backends()
    ]
    usable = usable_backends()
    for name, setting, accepted in (
        ("backend", _backend, " or ".join(usable)),
        ("threads", _threads, f"an integer from 1 to {MOST_THREADS}"),
        ("rounding", _rounding, "correct or fast"),
    ):
        try:
            lines.append(Line(name, setting()))
        except ValueError:
            variable = f"TRUENORM_{name.upper()}"
            remedy = f"unset {variable}, or set it to {accepted}"
            lines.append(Line(name, f"{variable} is {os.environ[variable]!r}", remedy))
    return tuple(lines)


def _backend() -> str:
    usable, wanted = usable_backends(), os.environ.get("TRUENORM_BACKEND")
    if wanted and wanted not in usable:
        raise ValueError(wanted)
    return f"{wanted}, by TRUENORM_BACKEND" if wanted else f"{usable[0]}, the first usable one"


def _threads() -> str:
    count = thread_count(threads_of(None, variables().threads))
    if os.environ.get("TRUENORM_THREADS"):
        why = "by TRUENORM_THREADS"
    else:
        why = "by OMP_NUM_THREADS" if omp_num_threads() else "one for each usable core"
    return f"{count}, {why}; of {os.cpu_count()} cores"


def _rounding() -> str:
    chosen = variables().rounding
    if chosen is None:
        return "correct, unless a call asks for fast"
    return f"{rounding_of(chosen)} in every call, by TRUENORM_ROUNDING"


def processor() -> Lines:
    """Return NumPy's vector instructions, and whether arithmetic follows IEEE 754."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    features = ", ".join([*simd.get("baseline", []), *simd.get("found", [])])
    arithmetic = Line("arithmetic", "rounded to nearest, with subnormal numbers")
    try:
        check_arithmetic()
    except RuntimeError as error:
        arithmetic = Line("arithmetic", "not IEEE's", str(error))
    return Line("features", features), arithmetic


REPORT = "please report this with all lines above"
OVERRIDES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
PASSED = ("correct", "not tested")
"""How the result of a test begins; any other is a problem."""
CASES = {
    "layer_norm": ("normal-4x67", "offset-100-4x67", "exact-tie", "one-ulp-off", "nan-in-x"),
    "rms_norm": ("normal-4x67", "nan-in-x"),
}
"""Cases of the judge by operation: ordinary rows, cancellation, a tie, and NaN."""
WIDTHS = ("normal-4x64", "normal-2x1000", "normal-2x4096")
"""Cases for a device, which compiles a kernel for each width."""
INSTALL = (
    "pip install 'truenorm[opencl]', and a driver with OpenCL by the maker of the card; without a "
    "card, PoCL computes on the processor (Debian: apt-get install pocl-opencl-icd)"
)
CUDA_NEEDS = "not looked at: arrays on a card of NVIDIA need CuPy and truenorm[cuda]"
UNTESTED = Line("not run", "the arithmetic of this process is not IEEE's")


class Place(NamedTuple):
    """A backend or a device to test: its arrays, its cases by operation, and its types."""

    name: str
    description: str = ""
    put: Callable[[Any], Any] = lambda array: array
    get: Callable[[Any], Any] = lambda array: array
    backend: str | None = None
    cases: Mapping[str, tuple[str, ...]] = CASES
    types: tuple[str, ...] = tuple(FORMATS)


def by_opencl() -> Place | Line:
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
    return Place(
        "OpenCL",
        f"{device.name.strip()}{'' if is_gpu else ', which is no GPU'}; "
        f"{device.version.strip()}, driver {device.driver_version}",
        partial(cl_array.to_device, queue),
        lambda array: array.get(),
        # On a processor a kernel compiles for a second.
        cases=dict.fromkeys(CASES, WIDTHS if is_gpu else WIDTHS[1:2]),
        types=("float16", "bfloat16", "float32"),
    )


def by_cuda() -> Place | Line:
    """Return an NVIDIA card by CuPy, which has no bfloat16, or a line that says why not."""
    if find_spec("cupy") is None or find_spec("cuda") is None:
        return Line("CUDA", CUDA_NEEDS)
    try:
        import cupy

        runtime = cupy.cuda.runtime
        card = runtime.getDeviceProperties(0)["name"].decode()
        driver = runtime.driverGetVersion()
    except Exception as error:  # CuPy raises many types without a card or a driver
        return Line("CUDA", f"no card: {error_text(error)}")
    return Place(
        "CUDA",
        f"{card}, experimental; driver of CUDA {driver // 1000}.{driver % 1000 // 10}",
        cupy.asarray,
        cupy.asnumpy,
        cases=dict.fromkeys(CASES, WIDTHS),
        types=("float16", "float32"),
    )


def error_text(error: Exception) -> str:
    """Return the message of an error without the home folder."""
    return without_home(f"{type(error).__name__}: {error}")


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
    >>> list(examine().sections)[:2]
    ['Versions', 'Backends']
    """
    sections = {
        "Versions": versions(),
        "Backends": backend_lines(),
        "Processor": processor(),
    }
    if any(line.remedy for line in sections["Processor"]):
        # The operations refuse to compute; further problems would only hide the cause.
        return Diagnosis(today(), full, {**sections, "Self-test": (UNTESTED,)}, gpu)
    if full or not gpu:
        # The gpu backend is tested as a device.
        places = [Place(name, backend=name) for name in usable_backends() if name != "gpu"]
        sections["Self-test"] = self_test(places, progress)
    if full:
        sections["Judge, quick level"] = judgement(progress)
    if gpu:
        found = by_opencl(), by_cuda()
        sections["Devices"] = tuple(
            Line(*each[:2]) if isinstance(each, Place) else each for each in found
        )
        places = [each for each in found if isinstance(each, Place)]
        sections["Bits of devices"] = self_test(places, progress)
    return Diagnosis(today(), full, sections, gpu)


def self_test(places: Iterable[Place], progress: Progress | None = None) -> Lines:
    """Compare a few results of each place and type with the exact answers, bit by bit."""
    jobs = [(place, dtype) for place in places for dtype in place.types]
    steps = with_callback(jobs, progress, lambda job: f"{job[0].name}, {job[1]}")
    with _without_variables():
        return tuple(
            _tested(f"{place.name}, {dtype}", dtype, partial(_compare, place, dtype))
            for place, dtype in steps
        )


@contextmanager
def _without_variables() -> Iterator[None]:
    overrides = {name: os.environ.pop(name) for name in OVERRIDES if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(overrides)


def _tested(name: str, dtype: str, test: Callable[[], str]) -> Line:
    """Return the result of a test."""
    try:
        dtype_of(dtype)
    except ValueError as error:  # its package is missing
        return Line(name, f"not tested: {error}")
    try:
        value = test()
    except Exception as error:  # an installation or a driver can fail in any way
        value = f"FAILED: {error_text(error)}"
    return Line(name, value, "" if value.startswith(PASSED) else REPORT)


def _compare(place: Place, dtype: str) -> str:
    """Compare all results of a type with the exact answers."""
    wrong, count = [], 0
    for operation, names in place.cases.items():
        for each in (case(f"{dtype}-{name}", operation=operation) for name in names):
            answers = expected(each).values
            for output, result in _passes(place, each).items():
                count += 1
                here, answer = place.get(result), answers[output]
                if here is None or answer is None or here.tobytes() != answer.tobytes():
                    wrong.append(f"{output} of {each.name}, {operation}")
    if wrong:
        return f"WRONG: {'; '.join(wrong)}"
    return f"correct to the bit ({count} results, forward and backward)"


def _passes(place: Place, each: Case) -> dict[str, Any]:
    """Return the results of both passes."""
    centred = each.operation.spec == "layer_norm"
    forward = layer_norm_forward if centred else rms_norm_forward
    backward = layer_norm_backward if centred else rms_norm_backward
    parameters = ("gamma", "beta") if centred else ("gamma",)
    arrays = {name: place.put(array) for name, array in each.inputs.items()}
    x, dy = arrays["x"], arrays["dy"]
    y, saved = forward(x, *map(arrays.get, parameters), eps=each.eps, backend=place.backend)
    gradients = backward(dy, saved, backend=place.backend)
    outputs = ("y", "dx", *(f"d{name}" for name in parameters))
    return dict(zip(outputs, (y, *gradients), strict=False))


def judgement(progress: Progress | None = None) -> Lines:
    """Judge truenorm on the quick level: every grade must be ``correct``."""
    with _without_variables():
        return tuple(_tested(each, each, partial(_judge, each, progress)) for each in FORMATS)


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
    for title, lines in diagnosis.sections.items():
        yield f"\n{title}"
        for line in lines:
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
