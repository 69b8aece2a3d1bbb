"""The workflow of a release, and the check of tag, version and changelog."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import truenorm

ROOT = Path(__file__).parents[3]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
TAG = "v1.2.3"
SCRIPT = Path(".ci", "check_release.py")
FILES = {
    "src/truenorm/__init__.py": '"""Norms."""\n\n__version__ = "1.2.3"\n',
    "CITATION.cff": "title: truenorm\nversion: 1.2.3\ndate-released: 2030-01-31\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2030-01-31)\n\n- A fix.\n",
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
    command = [sys.executable, str(checkout / SCRIPT), tag]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == (1 if done.stderr else 0), done.stderr
    return done.stderr


def test_files_that_agree(checkout: Path) -> None:
    assert problems(checkout, TAG) == ""


def test_this_checkout() -> None:
    version = truenorm.__version__
    problem = f"{version} is a development version: set __version__ to that of the release\n"
    assert problems(ROOT, f"v{version}") == (problem if ".dev" in version else "")


@pytest.mark.parametrize("tag", ["v1.2.4", "1.2.3", "v1.2.3.dev0"])
def test_another_tag(checkout: Path, tag: str) -> None:
    expected = f"the tag of version 1.2.3 must be v1.2.3, got {tag}\n"
    assert problems(checkout, tag) == expected


@pytest.mark.parametrize(
    ("file", "before", "after", "expected"),
    [
        ("CHANGELOG.md", "1.2.3", "1.2.4", "must be '1.2.3 (YYYY-MM-DD)', got '1.2.4 (2030-"),
        ("CHANGELOG.md", "(2030-01-31)", "(soon)", "(YYYY-MM-DD)', got '1.2.3 (soon)'"),
        ("CHANGELOG.md", "1.2.3 (2030-01-31)", "Unreleased", "(YYYY-MM-DD)', got 'Unreleased'"),
        ("CHANGELOG.md", "## 1", "## Unreleased\n\n## 1", "(YYYY-MM-DD)', got 'Unreleased'"),
        ("CHANGELOG.md", "## 1.2.3 (2030-01-31)", "", "(YYYY-MM-DD)', got 'nothing'"),
        ("CITATION.cff", "1.2.3", "1.2.4", "must have version 1.2.3, got 1.2.4"),
        ("CITATION.cff", "2030", "2031", "must have date-released 2030-01-31, got 2031-01-31"),
        ("CITATION.cff", "date-released", "date", "must have date-released 2030-01-31, got no"),
    ],
)
def test_files_that_disagree(
    checkout: Path, file: str, before: str, after: str, expected: str
) -> None:
    (checkout / file).write_text(FILES[file].replace(before, after), encoding="utf-8")
    assert expected in problems(checkout, TAG)


def test_a_release_runs_every_example() -> None:
    """Or `OTHER_EXAMPLES` says which session does."""
    lists = (ROOT / "noxfile.py").read_text(encoding="utf-8").partition("def install(")[0]
    named = set(re.findall(r"[\w/]+\.py", lists.partition("\nEXAMPLE_COMMANDS")[2]))
    examples = ROOT / "examples"
    for path in examples.rglob("*.py"):
        name = path.relative_to(examples).as_posix()
        if not name.startswith("package/"):
            assert named & {name, path.name}, f"add examples/{name} to a list in noxfile.py"


def test_only_jobs_that_publish_may_write() -> None:
    assert WORKFLOW["permissions"] == {}
    written = {
        name: {scope for scope, access in job["permissions"].items() if access == "write"}
        for name, job in WORKFLOW["jobs"].items()
    }
    assert {name: scopes for name, scopes in written.items() if scopes} == {
        "attest": {"attestations", "id-token"},
        "publish": {"id-token"},
        "publish-pages": {"id-token", "pages"},
    }


def test_every_build_and_test_precedes_publishing() -> None:
    jobs = WORKFLOW["jobs"]
    before = {"publish"}
    while (
        needed := {each for name in before for each in as_list(jobs[name].get("needs"))} - before
    ):
        before |= needed
    assert before == jobs.keys() - {"publish-pages"}
    assert jobs["publish-pages"]["needs"] == "publish"


def as_list(names: str | list[str] | None) -> list[str]:
    return [names] if isinstance(names, str) else names or []
