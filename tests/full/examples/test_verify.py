"""The examples of the pages on the judge: the bugs are found, the corrected kernel passes."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import truenorm.verify as tv
from benchmarks.transcripts import TRANSCRIPTS, masked, run, shown

SLOW = pytest.mark.slow(reason="each verdict of an example takes 10 s or more")

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "verify"
PAGES = ROOT / "docs" / "judge"


@pytest.fixture(scope="module")
def report() -> tv.Report:
    return tv.verify(tv.load(f"{EXAMPLE / 'numpy_check.py'}:subject"))


@SLOW  # the transcript of the page names both
def test_both_bugs_are_found(report: tv.Report) -> None:
    assert not report.passed
    assert {each.output: each.grade for each in report.grades} == {
        "y": "conditional",  # one pass, and unstable beyond the domain
        "dx": "wrong",  # mean(g)
        "dgamma": "stable",
        "dbeta": "conditional",
    }
    assert "unstable" in {each.outcome for each in report.beyond if "y" in each.outputs}
    # The variance in one pass blurs rows of larger kappa.
    assert report.findings[0].cause.startswith("mean(g) is left out")
    slope = report.grades[0].slope
    assert slope is not None
    assert 1.5 < slope < 2.5


def names_by_commands() -> Iterator[Any]:
    """Yield the names of the transcripts that show parts of one output."""
    groups: dict[str, list[str]] = {}
    for name, transcript in TRANSCRIPTS.items():
        groups.setdefault(transcript.commands, []).append(name)
    for first, *others in groups.values():
        if not TRANSCRIPTS[first].needs_torch:  # compared in tests/needs_torch
            marks = [SLOW] if TRANSCRIPTS[first].slow else []
            yield pytest.param([first, *others], id=first, marks=marks)


@pytest.mark.parametrize("names", list(names_by_commands()))
def test_page_shows_this_output(names: list[str]) -> None:
    """Compare the words; the numbers depend on the version of NumPy."""
    for name in names:
        assert masked(shown(name)) == masked(run(name))


@pytest.mark.parametrize("part", ["judge", "reference"])
def test_terminal_output_is_generated(part: str) -> None:
    """No page has output that was typed by hand."""
    for page in (ROOT / "docs" / part).glob("*.md"):
        text = page.read_text(encoding="utf-8")
        by_hand = re.sub(r"<!-- begin (.+?) -->.*?<!-- end \1 -->", "", text, flags=re.DOTALL)
        assert not re.search(r"^```(console|text)$", by_hand, flags=re.MULTILINE), page.name


@pytest.mark.parametrize(
    ("page", "heading", "file"),
    [
        ("verify.md", "\n## NumPy\n", "numpy_check.py"),
        ("read-a-fail.md", "# Read a FAIL\n", "rms_norm_check.py"),
    ],
)
def test_page_shows_this_kernel(page: str, heading: str, file: str) -> None:
    """The listing is the file without type hints, docstrings and comments."""
    text = (PAGES / page).read_text(encoding="utf-8")
    listing = text.partition(heading)[2].partition("```python\n")[2].partition("```")[0]
    shown = {re.sub(r" +# .*", "", line) for line in listing.splitlines() if line[:1] != "#"}
    source = (EXAMPLE / file).read_text(encoding="utf-8")
    lines = set(re.sub(r": Array|: Any|: float| -> [^:]+", "", source).splitlines())
    assert listing
    assert shown <= lines, shown - lines


@SLOW
def test_first_reproducer_fails(report: tv.Report, tmp_path: Path) -> None:
    script = tmp_path / "again.py"
    script.write_text(report.findings[0].reproducer, encoding="utf-8")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "AssertionError: got " in done.stderr


@SLOW
def test_corrected_kernel_passes() -> None:
    report = tv.verify(tv.load(f"{EXAMPLE / 'numpy_check.py'}:mended"))
    assert report.passed, report.findings


@SLOW
def test_judge_in_pytest(tmp_path: Path) -> None:
    """Run in another folder, without the settings of this repository."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_kernel.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert f"{len(tv.cases('float32'))} passed" in done.stdout
