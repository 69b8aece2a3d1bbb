"""``truenorm warmup``: what it asks for, what it shows, and how it refuses."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.recording import recorded, run
from programs import SOURCES, run_on_terminal
from truenorm.cli import warmup as command
from truenorm.warmup import Report, Step

REPORT = Report(
    (Step("rms_norm", "float32", "fast", "forward", 3, 1, 1.5),), Path("kernels-01"), 3
)
PROGRAM = "from truenorm.cli import main; main()"


def test_options_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, command, "warm_up", REPORT)
    run("warmup")
    run("warmup", "--dtype", "float16", "--dtype", "float32", "--operation", "rms_norm")
    run("warmup", "--operation", "rms_norm", "--operation", "layer_norm")
    given: list[tuple[object, list[str]]] = [
        ((), ["layer_norm"]),
        (["float16", "float32"], ["rms_norm"]),
        ((), ["rms_norm", "layer_norm"]),
    ]
    assert asked == [
        ((dtypes,), {"operation": operations, "progress": None}) for dtypes, operations in given
    ]


def test_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded(monkeypatch, command, "warm_up", REPORT)
    done = run("warmup")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "float32  fast  forward         3       1  1.5 s" in done.stdout
    done = run("warmup", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["steps"][0]["compiled"], found["folder"]) == (3, "kernels-01")
    assert found["steps"][0]["operation"] == "rms_norm"


def test_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was compiled all the same."""
    recorded(monkeypatch, command, "warm_up", Report(REPORT.steps, None, 0, "no home"))
    done = run("warmup")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "every process compiles again: no home; truenorm doctor says" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "refusal", "words", "asked"),
    [
        ([], ValueError("pip install truenorm[fast]"), "pip install truenorm[fast]", 1),
        ([], ImportError("Numba needs NumPy 1.0"), "Numba needs NumPy 1.0", 1),
        (["--dtype", "float8"], None, "--dtype", 0),
        (["--operation", "batch_norm"], None, "--operation", 0),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    refusal: Exception | None,
    words: str,
    asked: int,
) -> None:
    calls = recorded(monkeypatch, command, "warm_up", refusal)
    done = run("warmup", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(calls) == asked


def started(before: str = "", path: str = "") -> list[str]:
    """Return the stderr of a new process, in which it cannot run."""
    kept = {name: value for name, value in os.environ.items() if "TRUENORM" not in name}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", before + PROGRAM, "warmup", "--dtype", "float32"],
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, [path, str(SOURCES)]))},
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr.splitlines()


def test_without_numba() -> None:
    before = "import sys; sys.modules.update(dict.fromkeys(['numba', 'llvmlite']))\n"
    reason = "needs Numba: pip install truenorm[fast]"
    assert started(before) == [f"truenorm: backend 'fused' cannot be used: {reason}"]


def test_a_numba_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 1.0 or less')")
    assert started(path=str(tmp_path)) == ["truenorm: Numba needs NumPy 1.0 or less"]


def test_a_real_terminal() -> None:
    """There is a bar, which vanishes, and no line that says how to do what is being done."""
    pytest.importorskip("numba")
    printed, said = run_on_terminal(PROGRAM, "warmup", "--dtype", "float64")
    assert "Kept for the next process: " in printed
    assert "float64, correct, backward" in said
    assert said.endswith("\x1b[2K")  # the line is erased
    assert "TRUENORM_QUIET" not in said
