"""What truenorm finds around it: packages, backends, the processor."""

import os
import platform
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from truenorm import dispatch
from truenorm.doctor.report import Line, Section
from truenorm.ops.arguments import rounding_of, threads_of
from truenorm.ops.environment import check_arithmetic, variables
from truenorm.threads import thread_count
from truenorm.tools.machine import describe, package_version
from truenorm.tools.text import without_home

__all__ = ["backends", "error_text", "processor", "usable_backends", "versions"]

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
"""What a package is imported as, what it is for, and the extra of truenorm that installs it."""


def error_text(error: Exception) -> str:
    """Return what an error says, and nothing about whose machine it is."""
    return without_home(f"{type(error).__name__}: {error}")


def versions() -> Section:
    """Return the versions of everything that truenorm uses or can use."""
    here = describe("truenorm", "python", "system")
    here["python"] = f"{platform.python_implementation()} {here['python']}"
    found = here | {name: _version(name, *how) for name, how in PACKAGES.items()}
    return Section("Versions", tuple(Line(*each) for each in found.items()))


def _version(name: str, module: str, purpose: str, extra: str) -> str:
    if find_spec(module) is None:
        return f"not installed; it is for {purpose}: pip install 'truenorm[{extra}]'"
    version = package_version(name)
    return "installed, of unknown version" if version == "not installed" else version


def usable_backends() -> list[str]:
    """Return the names of the backends that can be used here."""
    return [status.name for status in dispatch.backends() if status.usable]


def backends() -> Section:
    """Return all backends, and what a call without arguments gets."""
    found = [
        Line(status.name, ("usable: " if status.usable else "not usable: ") + status.reason)
        for status in dispatch.backends()
    ]
    threads = _setting("threads", _threads, "a whole number of at least 1")
    rounding = _setting("rounding", _rounding, "correct or fast")
    return Section("Backends", (*found, _taken(), threads, rounding))


def _taken() -> Line:
    wanted, usable = os.environ.get("TRUENORM_BACKEND"), usable_backends()
    if not wanted:
        return Line("taken", f"{usable[0]}, the first that is usable")
    remedy = f"unset TRUENORM_BACKEND, or set it to {' or '.join(usable)}"
    return Line("taken", f"{wanted}, by TRUENORM_BACKEND", "" if wanted in usable else remedy)


def _setting(name: str, value: Callable[[], str], accepted: str) -> Line:
    """Return what is in force; a variable that means nothing is a problem."""
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
    """Return the vector instructions that NumPy found, and whether arithmetic is IEEE's."""
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    features = ", ".join([*simd.get("baseline", []), *simd.get("found", [])])
    missing = ", ".join(simd.get("not found", []))
    lines = [Line("features", features + (f"; not {missing}" if missing else ""))]
    try:
        check_arithmetic()
        lines.append(Line("arithmetic", "rounded to nearest, with subnormal numbers"))
    except RuntimeError as refused:  # the operation itself says what is wrong
        lines.append(Line("arithmetic", "not IEEE's", str(refused)))
    return Section("Processor", tuple(lines))
