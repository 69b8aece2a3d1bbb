"""``truenorm demo``: what it asks for, and how it refuses."""

import json
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli import demo as command
from truenorm.cli.app import app
from truenorm.demo.demonstration import DTYPES, demonstrate
from truenorm.demo.errors import OUTPUTS

SMALL = demonstrate(["float32"], size=3)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what is asked for; the answer is the same each time."""
    calls: list[dict[str, Any]] = []

    def answer(dtypes: tuple[str, ...], **options: Any) -> object:
        calls.append({"dtypes": tuple(dtypes), **options})
        return SMALL

    monkeypatch.setattr(command, "demonstrate", answer)
    return calls


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments])


def test_options_reach_the_demonstration(asked: list[dict[str, Any]]) -> None:
    run()
    run("--dtype", "float64", "--size", "7", "--seed", "3")
    assert asked == [
        {"dtypes": DTYPES, "size": 100, "seed": 0, "progress": None},
        {"dtypes": ("float64",), "size": 7, "seed": 3, "progress": None},
    ]


@pytest.mark.usefixtures("asked")
def test_an_output_is_chosen() -> None:
    assert "float32, y: correct digits" in run().stdout
    done = run("--output", "dgamma")
    assert done.exit_code == 0
    assert "float32, dgamma: correct digits" in done.stdout
    assert "float32, y: correct digits" not in done.stdout


@pytest.mark.usefixtures("asked")
def test_json_is_alone_on_stdout() -> None:
    done = run("--json")
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout)["size"] == 3


def test_choices_are_those_of_the_demonstration() -> None:
    assert get_args(command.SweptType) == DTYPES
    assert set(get_args(command.OutputName)) == set(OUTPUTS)


@pytest.mark.usefixtures("asked")
def test_png(tmp_path: Path) -> None:
    file = tmp_path / "errors.png"
    done = run("--png", str(file), "--json")
    assert done.exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    json.loads(done.stdout)
    assert done.stderr == f"wrote {file}\n"


@pytest.mark.parametrize("name", ["", "missing/errors.png", "errors.jpg", "errors"])
def test_where_no_picture_can_be_is_said_before_the_run(
    asked: list[dict[str, Any]], tmp_path: Path, name: str
) -> None:
    done = run("--png", str(tmp_path / name))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --png a file " in done.stderr
    assert asked == []


@pytest.mark.usefixtures("asked")
def test_a_picture_that_cannot_be_written_does_not_cost_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("truenorm.demo.figure.write", refuse)
    done = run("--png", str(tmp_path / "errors.png"))
    assert done.exit_code == 2
    assert "correct digits" in done.stdout
    assert "No space left on device; give --png another file" in done.stderr


def test_png_without_the_extra(
    asked: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "truenorm.demo.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("--png", str(tmp_path / "errors.png"))
    assert done.exit_code == 2
    assert "--png needs the package matplotlib: pip install" in done.stderr
    assert asked == []


@pytest.mark.parametrize(
    "wrong", [["--size", "1"], ["--dtype", "float16"], ["--output", "dbeta"], ["--seed", "-1"]]
)
def test_a_wrong_command_line_is_exit_code_2(
    asked: list[dict[str, Any]], wrong: list[str]
) -> None:
    assert run(*wrong).exit_code == 2
    assert asked == []
