"""Compilers without a device: nvcc, NVRTC and clang; and what each says of a kernel."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.gpu.kernels import Subject, defines
from benchmarks.peer.environments import Peer
from benchmarks.peer.process import FOLDER, python_for
from truenorm.kernels.gpu.plan import Plan

__all__ = ["AMD", "COMPILERS", "NVIDIA", "Compiler", "Use", "is_here", "ptx_of"]

NVIDIA = ("sm_80", "sm_90", "sm_100", "sm_120")
AMD = ("gfx90a", "gfx942")

NVCC = ("nvcc", "-fmad=false", "-Werror", "all-warnings")
CLANG = (
    *("clang-19", "-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-nostdinc"),
    *("-O3", "-ffp-contract=off", "-Wall", "-Werror", "-DBARE_HIP", "-S"),
)
NVRTC = Peer("nvrtc", "nvrtc", ("nvidia-cuda-nvrtc==13.4.92",))
"""A library alone; it needs no driver."""


class Use(NamedTuple):
    """What a thread of a kernel uses, in registers and bytes, and a block of it."""

    registers: int
    spilled: int
    shared: int
    waves: int | None = None
    """Of AMD: how many a SIMD has at the same time, as LLVM says."""


class Compiler(NamedTuple):
    """A compiler, what it compiles for, and how."""

    name: str
    targets: tuple[str, ...]
    version: Callable[[], str | None]
    """None if it is not here."""
    compile: Callable[[Subject, str, str], Use]
    """Of a source, for a target; a warning is an error."""


def is_here(name: str) -> bool:
    """Tell whether a compiler can be used without installing anything."""
    if name == "NVRTC":
        return (FOLDER / NVRTC.environment / "installed.txt").exists()
    return COMPILERS[name].version() is not None


def by_nvcc(subject: Subject, source: str, target: str) -> Use:
    """Compile to machine code."""
    options = ("-cubin", f"-arch={target}", "-Xptxas", "-v")
    said, _ = _ran((*NVCC, *options), source, subject.plan)
    return _of_ptxas(subject.kernel, said)


def ptx_of(source: str, plan: Plan, target: str) -> str:
    """Return what nvcc makes before it goes down to machine code."""
    return _ran((*NVCC, "-ptx", f"-arch={target}"), source, plan)[1]


def by_clang(subject: Subject, source: str, target: str) -> Use:
    """Compile to assembly, in which LLVM says after each kernel what it uses."""
    _, text = _ran((*CLANG, f"--offload-arch={target}"), source, subject.plan)
    said = text.partition(f"\n{subject.kernel}:")[2].partition("; -- End function")[2]
    return Use(
        registers=_number(r"; TotalNumVgprs: (\d+)", said),
        spilled=_number(r"; ScratchSize: (\d+)", said),
        shared=_number(r"; LDSByteSize: (\d+)", said),
        waves=_number(r"; Occupancy: (\d+)", said),
    )


def by_nvrtc(subject: Subject, source: str, target: str) -> Use:
    """Compile to machine code, as a program does while it runs."""
    library = _nvrtc()
    assert library is not None
    program = ctypes.c_void_p()
    given = [f"--gpu-architecture={target}", "--fmad=false", "--ptxas-options=-v"]
    given += defines(subject.plan)
    options = (ctypes.c_char_p * len(given))(*(each.encode() for each in given))
    _check(
        library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"a.cu", 0, None, None)
    )
    failed = library.nvrtcCompileProgram(program, len(given), options)
    size = ctypes.c_size_t()
    _check(library.nvrtcGetProgramLogSize(program, ctypes.byref(size)))
    log = ctypes.create_string_buffer(size.value)
    _check(library.nvrtcGetProgramLog(program, log))
    _check(library.nvrtcDestroyProgram(ctypes.byref(program)))
    said = log.value.decode()
    if failed or "warning" in said:
        raise RuntimeError(said)
    return _of_ptxas(subject.kernel, said)


def _check(code: int) -> None:
    if code:
        raise RuntimeError(f"NVRTC ended with {code}")


def _of_ptxas(kernel: str, said: str) -> Use:
    """Read what ptxas says of one kernel of those that it compiled."""
    said = said.partition(f"Compiling entry function '{kernel}'")[2].partition("Compiling")[0]
    shared = re.search(r"(\d+) bytes smem", said)
    return Use(
        registers=_number(r"Used (\d+) registers", said),
        spilled=_number(r"(\d+) bytes spill stores", said),
        shared=int(shared[1]) if shared else 0,
    )


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"nothing like {pattern} in:\n{text}")
    return int(found[1])


def _ran(command: Sequence[str], source: str, plan: Plan) -> tuple[str, str]:
    """Run a compiler that reads a file and writes one; return what it said and wrote."""
    with TemporaryDirectory() as folder:
        given, made = Path(folder) / "a.cu", Path(folder) / "a.out"
        given.write_text(source, encoding="utf-8")
        ran = subprocess.run(
            [*command, *defines(plan), str(given), "-o", str(made)],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr, made.read_text(encoding="utf-8", errors="replace")


def _version(program: str, pattern: str) -> str | None:
    if shutil.which(program) is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    found = re.search(pattern, said.stdout)
    assert found is not None, said.stdout
    return found[1]


@cache
def _nvrtc() -> Any:
    """Return the library, from an environment that is made if it is not there yet."""
    home = python_for(NVRTC).parents[1]
    found = sorted(home.glob("lib/python*/site-packages/nvidia/*/lib/libnvrtc.so.*"))
    return ctypes.CDLL(str(found[0])) if found else None


def _nvrtc_version() -> str | None:
    library = _nvrtc()
    if library is None:
        return None
    numbers = ctypes.c_int(), ctypes.c_int()
    _check(library.nvrtcVersion(*map(ctypes.byref, numbers)))
    return ".".join(str(each.value) for each in numbers)


COMPILERS = {
    each.name: each
    for each in (
        Compiler("nvcc", NVIDIA, lambda: _version("nvcc", r"V([\d.]+)"), by_nvcc),
        Compiler("NVRTC", NVIDIA, _nvrtc_version, by_nvrtc),
        Compiler("clang", AMD, lambda: _version("clang-19", r"version ([\d.]+)"), by_clang),
    )
}
