"""The examples of the pages on the judge: the bugs are found, the corrected kernel passes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import truenorm.verify as tv

SLOW = pytest.mark.slow(reason="each verdict of an example takes 10 s or more")

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "verify"


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
    assert [each.id for each in report.findings[0].causes] == ["no-term(mean(g))"]
    slope = report.grades[0].slope
    assert slope is not None
    assert 1.5 < slope < 2.5


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
    numbers = [int(each) for each in re.findall(r"(\d+) (?:passed|skipped)", done.stdout)]
    subject = tv.load(str(EXAMPLE / "numpy_check.py:mended"))
    assert sum(numbers) == len(tv.verdicts(subject))
