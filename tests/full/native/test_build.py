"""The C core compiles without warnings, and an installation without it reports why."""

import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.native.building import NATIVE, ROOT, SETS, SOURCES, compiler_named, variants
from truenorm.kernels.native import availability
from truenorm.kernels.native.availability import core_or_none, is_built, reason_for_absence

CHECK = ["-fsyntax-only", f"-I{sysconfig.get_path('include')}"]


def compile_commands(compiler: str) -> Iterator[list[str]]:
    """Yield the commands of setup.py, which stop after the warnings."""
    macros = subprocess.check_output([compiler, "-dM", "-E", "-x", "c", os.devnull], text=True)
    sets = list(SETS) if "__x86_64__" in macros else ["baseline"]
    for source in sorted(SOURCES.glob("*.c")):
        for options in variants(source, sets).values():
            yield [compiler, *NATIVE["flags"], *CHECK, *options, str(source)]


def errors(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


# The gate compiles the core with -Werror: see noxfile.py.
@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(
            "gcc",
            marks=pytest.mark.slow(reason="gcc compiles all variants of the core again"),
        ),
        "clang-19",
    ],
)
def test_no_warnings(compiler: str) -> None:
    compiler_named(compiler)
    for command in compile_commands(compiler):
        assert errors([*command, "-Werror"]) == "", " ".join(command)


@pytest.mark.parametrize("compiler", ["gcc", "clang-19"])
def test_fast_math_is_refused(compiler: str) -> None:
    """CFLAGS come before our flags. What refuses does not depend on the type of the rows."""
    compiler_named(compiler)
    for _, *options in compile_commands(compiler):
        if not {"-DELEMENT=float16", "-DELEMENT=bfloat16"} & set(options):
            command = [compiler, "-ffast-math", *options, "-E"]
            assert "compile without -ffast-math" in errors(command), " ".join(command)


PARTS = (
    "-ffinite-math-only", "-fno-signed-zeros", "-freciprocal-math", "-fno-trapping-math",
    "-funsafe-math-optimizations",
)  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_fast_math_are_refused(part: str) -> None:
    command = [compiler_named("gcc"), part, "-E", "-x", "c", str(SOURCES / "core.h")]
    assert "compile without -ffast-math" in errors(command)
    assert errors([*command[:1], *command[2:]]) == ""


def test_every_named_source_exists() -> None:
    named = {*NATIVE["per-set"], *NATIVE["of-float64"]}
    sources = ROOT / "src" / "truenorm" / "kernels" / "native"  # a wheel has none
    assert {path.name for path in sources.glob("*.c")} > named
    assert "baseline" in NATIVE["sets"]


def test_no_reason_if_the_core_is_built() -> None:
    assert is_built() == (core_or_none() is not None) == (reason_for_absence() == "")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Look for a core that does not exist; return the file with the reason."""
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
    """A core of another platform: the file exists, and the dynamic linker rejects it."""

    def fail(name: str) -> None:
        raise ImportError(f"{name}: invalid ELF header\nmore")

    monkeypatch.setattr(availability, "import_module", fail)
    assert reason_for_absence().endswith("_absent: invalid ELF header")
    assert not absent.exists()
