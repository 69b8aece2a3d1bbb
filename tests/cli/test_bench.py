"""``truenorm bench``, with a run that is over at once."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bench.made_up import report
from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES
from truenorm.cli import bench as command
from truenorm.cli.app import app


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, Any]]]:
    """Return what is asked to be measured; nothing is."""
    calls: list[tuple[Any, dict[str, Any]]] = []

    def measure(shapes: Any, **options: Any) -> Any:
        calls.append((shapes, options))
        return report()

    monkeypatch.setattr(command, "measure", measure)
    return calls


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


def test_options_are_passed_on(asked: list[tuple[Any, dict[str, Any]]]) -> None:
    run()
    run("2x3", "4x5x6", "--dtype", "float16", "--threads", "3", "--rounds", "9")
    plain = {"dtype": "float32", "threads": None, "rounds": DEFAULT_ROUNDS, "progress": None}
    assert asked == [
        (DEFAULT_SHAPES, plain),
        (
            [(2, 3), (4, 5, 6)],
            {"dtype": "float16", "threads": 3, "rounds": 9, "progress": None},
        ),
    ]


def test_default_shapes_are_those_promised() -> None:
    assert DEFAULT_SHAPES == (
        (1, 1, 64), (1, 1, 1024), (1, 1, 4096), (2, 128, 64), (2, 128, 1024), (2, 128, 4096),
        (4, 512, 1024), (4, 512, 4096),
    )  # fmt: skip


@pytest.mark.usefixtures("asked")
def test_a_table() -> None:
    done = run()
    assert (done.exit_code, done.stderr) == (0, "")
    assert "truenorm correct" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.usefixtures("asked")
def test_json_is_alone_on_stdout(tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    done = run("--json", "--png", str(picture))
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["figures"][0]["shape"] == [2, 250]
    assert done.stderr == f"wrote {picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["2x"], "no shape: give whole numbers"),
        (["--threads", "0"], "--threads"),
        (["--rounds", "0"], "--rounds"),
        (["--dtype", "float8"], "--dtype"),
    ],
)
def test_refusals(
    asked: list[tuple[Any, dict[str, Any]]], arguments: list[str], words: str
) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert asked == []


@pytest.mark.parametrize(
    ("error", "words"), [(ValueError("unset it"), "unset it"), (MemoryError(), "a smaller one")]
)
def test_a_run_that_is_refused(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def measure(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(command, "measure", measure)
    done = run()
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("name", ["", "missing/picture.png"])
def test_where_no_picture_can_be_is_said_before_the_run(
    asked: list[tuple[Any, dict[str, Any]]], tmp_path: Path, name: str
) -> None:
    done = run("--png", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --png a file in a folder that exists" in done.stderr
    assert asked == []


def test_a_picture_without_matplotlib(
    asked: list[tuple[Any, dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "truenorm.bench.picture", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    done = run("--png", str(tmp_path / "picture.png"))
    assert done.exit_code == 2
    assert "--png needs the package matplotlib" in done.stderr
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_a_picture_that_cannot_be_written_does_not_cost_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("truenorm.bench.picture.draw", refuse)
    done = run("--png", str(tmp_path / "picture.png"))
    assert done.exit_code == 2
    assert "truenorm correct" in done.stdout
    assert "No space left on device; give --png another file" in done.stderr


def test_the_real_thing_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUENORM_BACKEND", "reference")
    code = "from truenorm.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "bench", "2x16", "--rounds", "2", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert (found["backend"], found["threads"], len(found["figures"])) == ("reference", 1, 10)
