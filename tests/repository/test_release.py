"""A release is refused unless tag, version, changelog and citation agree."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import truenorm

ROOT = Path(__file__).parents[2]
SCRIPT = Path(".ci", "check_release.py")
FILES = {
    "src/truenorm/__init__.py": '"""Norms."""\n\n__version__ = "1.2.3"\n',
    "CITATION.cff": "title: truenorm\nversion: 1.2.3\ndate-released: 2030-01-31\n",
    "CHANGELOG.md": "# Changelog\n\n## Unreleased\n\n## 1.2.3 (2030-01-31)\n\n- A fix.\n",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a folder with the files of a release."""
    (tmp_path / SCRIPT).parent.mkdir()
    shutil.copy(ROOT / SCRIPT, tmp_path / SCRIPT)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def problems(checkout: Path, tag: str) -> str:
    command = [sys.executable, checkout / SCRIPT, tag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if done.stderr else 0), done.stderr
    return done.stderr


def test_files_that_agree(checkout: Path) -> None:
    assert problems(checkout, "v1.2.3") == ""


@pytest.mark.skipif(".dev" in truenorm.__version__, reason="the version is not a release")
def test_this_checkout() -> None:
    assert problems(ROOT, f"v{truenorm.__version__}") == ""


@pytest.mark.parametrize("tag", ["v1.2.4", "1.2.3", "v1.2.3.dev0"])
def test_another_tag(checkout: Path, tag: str) -> None:
    expected = f"the tag of version 1.2.3 must be v1.2.3, got {tag}\n"
    assert problems(checkout, tag) == expected


@pytest.mark.parametrize(
    ("file", "before", "after", "expected"),
    [
        ("CHANGELOG.md", "1.2.3", "1.2.4", "must have a heading '## 1.2.3 (YYYY-MM-DD)'"),
        ("CHANGELOG.md", "(2030-01-31)", "(soon)", "must be YYYY-MM-DD, got soon"),
        ("CHANGELOG.md", "Unreleased\n", "Unreleased\n\n- A fix.\n", "entries under Unreleased"),
        ("CITATION.cff", "1.2.3", "1.2.4", "must have version 1.2.3, got 1.2.4"),
        ("CITATION.cff", "2030", "2031", "must have date-released 2030-01-31, got 2031-01-31"),
        ("CITATION.cff", "date-released", "date", "must have date-released 2030-01-31, got no"),
    ],
)
def test_files_that_disagree(
    checkout: Path, file: str, before: str, after: str, expected: str
) -> None:
    (checkout / file).write_text(FILES[file].replace(before, after), encoding="utf-8")
    assert expected in problems(checkout, "v1.2.3")
