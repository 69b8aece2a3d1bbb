"""``truenorm doctor``: also where packages are missing or broken."""

import json
import os
import subprocess
import sys

import pytest

from cli.recording import recorded, run
from promise.checking import BACKENDS
from truenorm.cli import commands as command
from truenorm.doctor import Diagnosis, Line, Section

WELL = Diagnosis("2026-01-02", False, (Section("A", (Line("b", "c"),)),))
ILL = Diagnosis("2026-01-02", False, (Section("A", (Line("b", "c", "mend it"),)),))


@pytest.mark.parametrize(("diagnosis", "code"), [(WELL, 0), (ILL, 1)])
def test_exit_code(monkeypatch: pytest.MonkeyPatch, diagnosis: Diagnosis, code: int) -> None:
    asked = recorded(monkeypatch, command, "examine", diagnosis)
    done = run("doctor")
    assert (done.exit_code, done.stderr) == (code, "")
    assert done.stdout.startswith("```text\n")
    assert done.stdout.endswith("\n```\n")
    done = run("doctor", "--full", "--gpu", "--json")
    assert (done.exit_code, done.stderr) == (code, "")
    assert json.loads(done.stdout)["healthy"] is (code == 0)
    assert asked == [
        ((), {"full": given, "gpu": given, "progress": None}) for given in (False, True)
    ]


def run_without(missing: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process in which these packages cannot be imported."""
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
        "from truenorm.cli import main; main()"
    )
    kept = {name: value for name, value in os.environ.items() if "TRUENORM" not in name}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script, "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=kept,
    )


OTHERS = ["ml_dtypes", "flint", "matplotlib", "jinja2"]


def test_all_packages() -> None:
    done = run_without([])
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    taken = "native" if "native" in BACKENDS else "reference"
    assert f"taken {taken}, the first that is usable" in words
    assert words.count("correct to the bit") == 4 * len(BACKENDS)
    assert "HEALTHY" in words


def test_bare() -> None:
    """Only NumPy, and what every command needs; as JSON."""
    done = run_without(OTHERS, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    titles = ["Versions", "Backends", "Processor", "Self-test"]
    assert list(found["sections"]) == titles
    tested = {line["name"]: line["value"] for line in found["sections"]["Self-test"]["lines"]}
    missing = "not tested: bfloat16 needs the package ml_dtypes"
    for backend in BACKENDS:
        assert tested.pop(f"{backend}, bfloat16").startswith(missing)
    assert len(tested) == 3 * len(BACKENDS)
    assert all(value.startswith("correct to the bit") for value in tested.values())


@pytest.mark.slow
def test_full_and_bare() -> None:
    done = run_without(OTHERS, "--full")
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert words.count("PASS, by complex") == 2
    assert "bfloat16 not judged: bfloat16 needs the package ml_dtypes" in words
    assert words.count("correct: y, dx, dgamma and dbeta") == 3
