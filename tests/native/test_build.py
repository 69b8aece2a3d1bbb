"""The C core compiles without warnings, and an installation without it knows why."""

import os
import shutil
import subprocess
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from truenorm.kernels.native import availability
from truenorm.kernels.native.availability import core_or_none, is_built, reason_for_absence

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "truenorm" / "kernels" / "native"
NATIVE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["truenorm"][
    "native"
]
CHECK = ["-fsyntax-only", f"-I{sysconfig.get_path('include')}"]
COMPILERS = [
    pytest.param(
        name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"there is no {name}")
    )
    for name in ("gcc", "clang-19")
]


def is_x86(compiler: str) -> bool:
    command = [compiler, "-dM", "-E", "-x", "c", os.devnull]
    return "__x86_64__" in subprocess.check_output(command, text=True)


def compile_commands(compiler: str) -> Iterator[list[str]]:
    """Yield the commands of setup.py, which stop after the warnings."""
    x86 = is_x86(compiler)
    for source in sorted(FOLDER.glob("*.c")):
        variants = [["-DTRUENORM_X86_SETS"] if x86 else []]
        if source.name in NATIVE["per-set"]:
            variants = [
                [*options, f"-DINSTRUCTIONS={name}", f"-DELEMENT={element}"]
                for name, options in NATIVE["sets"].items()
                for element in NATIVE["elements"]
                if x86 or name == "baseline"
            ]
        elif source.name in NATIVE["of-float64"]:
            variants = [
                [*options, f"-DINSTRUCTIONS={name}"]
                for name, options in NATIVE["sets"].items()
                if x86 or name == "baseline"
            ]
        for options in variants:
            yield [compiler, *NATIVE["flags"], *CHECK, *options, str(source)]


def errors(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("compiler", COMPILERS)
def test_no_warnings(compiler: str) -> None:
    for command in compile_commands(compiler):
        assert errors([*command, "-Werror"]) == "", " ".join(command)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_fast_math_is_refused(compiler: str) -> None:
    """In front of our flags, where CFLAGS are."""
    for _, *options in compile_commands(compiler):
        command = [compiler, "-ffast-math", *options, "-E"]
        assert "compile without -ffast-math" in errors(command)


def test_every_named_source_exists() -> None:
    named = {*NATIVE["per-set"], *NATIVE["of-float64"]}
    assert {path.name for path in FOLDER.glob("*.c")} > named
    assert "baseline" in NATIVE["sets"]


def test_the_reason_is_empty_if_the_core_is_there() -> None:
    assert is_built() == (core_or_none() is not None) == (reason_for_absence() == "")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Look for a core that is nowhere; return where its build would leave the reason."""
    note = tmp_path / "not_built.txt"
    monkeypatch.setattr(availability, "CORE", "truenorm.kernels.native._absent")
    monkeypatch.setattr(availability, "NOTE", note)
    availability._load.cache_clear()
    yield note
    availability._load.cache_clear()


def test_recorded_reason(absent: Path) -> None:
    absent.write_text("gcc was not found\n")
    assert not is_built()
    assert reason_for_absence() == "the C core was not built: gcc was not found"


def test_no_recorded_reason(absent: Path) -> None:
    assert not absent.exists()
    assert core_or_none() is None
    assert "pip install -e ." in reason_for_absence()


def test_a_core_that_does_not_load(absent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one of another platform: the file is there, and the dynamic linker refuses it."""

    def refuse(name: str) -> None:
        raise ImportError(f"{name}: invalid ELF header\nmore")

    monkeypatch.setattr(availability, "import_module", refuse)
    assert reason_for_absence().endswith("_absent: invalid ELF header")
    assert not absent.exists()
