"""``truenorm vectors``: what it asks for, and how it refuses."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from truenorm.cli import vectors as command
from truenorm.cli.app import app
from truenorm.verify import suite
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case

SUMMARY = {"cases": 2, "folder": "f"}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, list[str]]]:
    """Return what the writer is asked for; it writes nothing."""
    calls: list[tuple[Path, list[str]]] = []

    def write(folder: Path, cases: Sequence[Case], _: object) -> dict[str, Any]:
        calls.append((folder, [str(case) for case in cases]))
        return SUMMARY

    monkeypatch.setattr(command, "write_vectors", write)
    monkeypatch.setattr(suite, "cases", lambda dtype, level: [f"{dtype} {level}"])
    return calls


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["vectors", *arguments])


def test_cases_of_the_level_and_types(asked: list[tuple[Path, list[str]]]) -> None:
    assert run("f").stdout == "cases: 2\nfolder: f\n"
    done = run("f", "--level", "full", "--dtype", "float16", "--dtype", "float64", "--json")
    assert json.loads(done.stdout) == SUMMARY
    assert asked == [
        (Path("f"), ["float32 quick"]),
        (Path("f"), ["float16 full", "float64 full"]),
    ]


@pytest.mark.parametrize(
    "refusal", [ValueError("no"), FileExistsError("no"), PermissionError("no")]
)
def test_refusals_are_exit_code_2(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    def refuse(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(command, "write_vectors", refuse)
    monkeypatch.setattr(suite, "cases", lambda *_: [])
    done = run("f")
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", "truenorm: no\n")


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    """The real writer this time."""
    (tmp_path / "mine.txt").touch()
    done = run(str(tmp_path))
    assert done.exit_code == 2
    assert "not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_bar_on_a_terminal_and_none_in_a_pipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real writer, on one small case."""
    ones = np.ones((1, 2), np.float32)
    small = layer_norm_case("ones", (ones, ones[0], ones[0], ones), eps=1.0)
    monkeypatch.setattr(suite, "cases", lambda *_: [small])
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    for terminal in (True, False):
        monkeypatch.setattr(sys.stderr, "isatty", lambda told=terminal: told)
        command.command(tmp_path / f"{terminal}")
        out, err = capsys.readouterr()
        assert out.startswith("cases: 1\n")
        assert all(word in err for word in ("writing", "0/1", "ones")) == terminal
        assert bool(err) == terminal
