"""What pytest shows of a case that fails: the test and the symptom, and none of our lines."""

import subprocess
import sys
from pathlib import Path

import pytest

import truenorm.verify as tv

SUITE = """
import pytest
import truenorm.verify as tv

def raises(*_):
    raise ValueError("the kernel's own words")

SUBJECTS = {
    "zeros": tv.Subject(lambda x, *_: 0 * x),
    "raises": tv.Subject(raises),
}

@pytest.mark.parametrize("name", SUBJECTS)
def test_kernel(name):
    tv.check(SUBJECTS[name], tv.case("float32-normal-4x5"))
"""
SOURCES = Path(tv.__file__).parent


@pytest.mark.parametrize(
    "style", ["auto", *(pytest.param(each, marks=pytest.mark.slow) for each in ("long", "short"))]
)
def test_a_failing_case_shows_no_source_of_ours(tmp_path: Path, style: str) -> None:
    (tmp_path / "test_kernel.py").write_text(SUITE, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--tb={style}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "2 failed" in done.stdout
    assert "AssertionError: float32-normal-4x5 (ordinary input, D = 5): y[" in done.stdout
    assert "raised ValueError: the kernel's own words" in done.stdout
    assert "tv.check(SUBJECTS[name], " in done.stdout
    assert str(SOURCES) not in done.stdout
    ours = {
        line.strip()
        for file in SOURCES.rglob("*.py")
        for line in file.read_text(encoding="utf-8").splitlines()
        if len(line.strip()) > 20
    }
    shown = {line.lstrip("> ").strip() for line in done.stdout.splitlines()}
    assert shown.isdisjoint(ours)
