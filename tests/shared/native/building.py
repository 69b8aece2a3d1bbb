"""Compile the C core, or a program that calls it, with other compilers or flags.

Tests are skipped where a compiler or an emulator is missing. With TRUENORM_NEEDS_COMPILERS, as
every night, they fail.
"""

import os
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import truenorm as tn

ROOT = Path(__file__).parents[3]
PACKAGE = Path(tn.__file__).parent
SOURCES = PACKAGE / "kernels" / "native"
DRIVER = Path(__file__).with_name("driver.c")
NATIVE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["truenorm"][
    "native"
]
SETS: dict[str, list[str]] = NATIVE["sets"]
MODULE = ("module.c", "entry.c")
"""The sources that include Python.h."""
FLAGS = [*(flag for flag in NATIVE["flags"] if flag != "-O3"), "-Werror"]


def program_named(*names: str) -> str:
    """Return the first of these programs that is installed; skip the test if none is, or fail."""
    path = next((path for name in names if (path := shutil.which(name))), None)
    if path is None:
        missing = pytest.fail if os.environ.get("TRUENORM_NEEDS_COMPILERS") else pytest.skip
        missing(f"needs {' or '.join(names)}")
    return path


def compiler_named(*names: str) -> str:
    """Return the first of these compilers that is installed; without one see `program_named`."""
    if not (SOURCES / "module.c").exists():
        pytest.skip("needs the sources of the C core")
    return program_named(*names)


def variants(source: Path, sets: Sequence[str]) -> dict[str, list[str]]:
    """Return the options of each object that setup.py compiles from a source, by its name."""
    if source.name in NATIVE["per-set"]:
        return {
            f"{source.stem}_{name}_{element}": [
                *SETS[name],
                f"-DINSTRUCTIONS={name}",
                f"-DELEMENT={element}",
            ]
            for name in sets
            for element in NATIVE["elements"]
        }
    if source.name in NATIVE["of-float64"]:
        return {f"{source.stem}_{name}": [*SETS[name], f"-DINSTRUCTIONS={name}"] for name in sets}
    return {source.stem: ["-DTRUENORM_X86_SETS"] if len(sets) > 1 else []}


def compile_all(
    compiler: str, folder: Path, *flags: str, sets: Sequence[str] = ("baseline",)
) -> list[str]:
    """Compile the core without the module, for some instruction sets; return the objects."""
    objects = []
    for source in sorted(SOURCES.glob("*.c")):
        if source.name in MODULE:
            continue
        for name, options in variants(source, sets).items():
            objects.append(str(folder / f"{name}.o"))
            run(compiler, *FLAGS, *flags, *options, "-c", str(source), "-o", objects[-1])
    return objects


def build_driver(compiler: str, folder: Path, *flags: str) -> Path:
    """Build the driver with the baseline; return the program."""
    program = folder / "driver"
    objects = compile_all(compiler, folder, *flags)
    inputs = [f"-I{SOURCES}", str(DRIVER), *objects, "-o", str(program), "-lm", "-lpthread"]
    run(compiler, *FLAGS, *flags, *inputs)
    return program


def build_package(compiler: str, folder: Path, *flags: str) -> Path:
    """Copy the package with a core built with these flags; return the folder to import."""
    ignored = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(PACKAGE, folder / "src" / "truenorm", ignore=ignored)
    objects = compile_all(compiler, folder, "-fPIC", *flags, sets=tuple(SETS))
    include = f"-I{sysconfig.get_path('include')}"
    core = folder / "src" / "truenorm" / "kernels" / "native" / "_core.abi3.so"
    module = [include, "-fPIC", "-shared", *(str(SOURCES / name) for name in MODULE), *objects]
    run(compiler, *FLAGS, *flags, *module, "-o", str(core), "-lm", "-lpthread")
    return folder / "src"


def run(*command: str) -> None:
    """Run a compiler; show its messages if it fails."""
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, f"{' '.join(command)}:\n{completed.stderr}"
