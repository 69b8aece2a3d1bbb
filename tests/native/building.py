"""Build the C core, or a driver of it, with another compiler or other flags."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

import truenorm as tn

__all__ = ["build_driver", "build_package", "compile_all", "compiler_named"]

PACKAGE = Path(tn.__file__).parent
SOURCES = PACKAGE / "kernels" / "native"
DRIVER = Path(__file__).with_name("driver.c")
FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-fno-math-errno"]
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw"]
ELEMENTS = ("float32", "float16", "bfloat16")
SETS = {"baseline": [], "avx2": AVX2, "avx512": AVX512}


def compiler_named(*names: str) -> str:
    """Return the first compiler of these that there is; skip the test if there is none."""
    if not (SOURCES / "module.c").exists():
        pytest.skip("needs the sources of the C core")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"needs {' or '.join(names)}")
    return found


def compile_all(
    compiler: str, folder: Path, *flags: str, sets: tuple[str, ...] = ("baseline",)
) -> list[str]:
    """Compile the core without the module, for some instruction sets; return the objects."""
    commands = {
        f"{name}_{instructions}_{element}": [
            f"-DINSTRUCTIONS={instructions}",
            f"-DELEMENT={element}",
            *SETS[instructions],
            str(SOURCES / f"{name}.c"),
        ]
        for name in ("forward", "backward", "fast_backward", "long_rows")
        for instructions in sets
        for element in ELEMENTS
    }
    commands |= {
        f"{name}_{instructions}": [
            f"-DINSTRUCTIONS={instructions}",
            *SETS[instructions],
            str(SOURCES / f"{name}.c"),
        ]
        for name in ("forward64", "backward64", "fast64")
        for instructions in sets
    }
    of_sets = ["-DTRUENORM_X86_SETS"] if len(sets) > 1 else []
    commands["calls"] = [*of_sets, str(SOURCES / "calls.c")]
    commands["threads"] = [str(SOURCES / "threads.c")]
    objects = []
    for name, command in commands.items():
        objects.append(str(folder / f"{name}.o"))
        run(compiler, *FLAGS, *flags, "-c", *command, "-o", objects[-1])
    return objects


def build_driver(compiler: str, folder: Path, *flags: str) -> Path:
    """Build the driver with the baseline; return the program."""
    program = folder / "driver"
    objects = compile_all(compiler, folder, *flags)
    linked = [f"-I{SOURCES}", str(DRIVER), *objects, "-o", str(program), "-lm", "-lpthread"]
    run(compiler, *FLAGS, *flags, *linked)
    return program


def build_package(compiler: str, folder: Path, *flags: str) -> Path:
    """Copy the package with a core that is built with these flags; return the folder to import."""
    left_out = shutil.ignore_patterns("_core*.so", "__pycache__")
    shutil.copytree(PACKAGE, folder / "src" / "truenorm", ignore=left_out)
    objects = compile_all(compiler, folder, "-fPIC", *flags, sets=tuple(SETS))
    include = f"-I{sysconfig.get_path('include')}"
    core = folder / "src" / "truenorm" / "kernels" / "native" / "_core.abi3.so"
    module = [include, "-fPIC", "-shared", str(SOURCES / "module.c"), *objects]
    run(compiler, *FLAGS, *flags, *module, "-o", str(core), "-lm", "-lpthread")
    return folder / "src"


def run(*command: str) -> None:
    """Run a compiler; show what it prints if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{' '.join(command)}:\n{ran.stderr}"
