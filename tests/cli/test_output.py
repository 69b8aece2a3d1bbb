"""What every command does with its report, where it can also write a page or a picture."""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.made_up import report as bench_report
from cli.recording import Calls, recorded, run
from truenorm.cli import commands, verify
from truenorm.cli.output import writer_of
from truenorm.demo import demonstrate
from verify.fake_report import failing_report


class Command(NamedTuple):
    """A command whose run is over at once, and what it writes beside its output."""

    words: tuple[str, ...]
    option: str
    module: Any
    function: str
    answer: object
    code: int
    shown: str
    file: str
    start: bytes
    drawn_by: str


COMMANDS = [
    Command(
        ("bench",), "--png", commands, "measure", bench_report(), 0, "truenorm correct", "a.png",
        b"\x89PNG", "truenorm.bench",
    ),
    Command(
        ("demo",), "--png", commands, "demonstrate", demonstrate(["float32"], size=3), 0,
        "correct digits", "a.png", b"\x89PNG", "truenorm.demo.page",
    ),
    Command(
        ("verify", "x.py"), "--html", verify, "verify_target", failing_report(), 1, "FAIL",
        "a.html", b"<!doctype html>",
        "truenorm.verify.report.html",
    ),
]  # fmt: skip


@pytest.fixture(params=COMMANDS, ids=lambda each: each.words[0])
def command(request: pytest.FixtureRequest) -> Command:
    chosen: Command = request.param
    return chosen


@pytest.fixture
def runs(command: Command, monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return the arguments of every run; there is an answer at once."""
    return recorded(monkeypatch, command.module, command.function, command.answer)


@pytest.mark.usefixtures("runs")
def test_for_people(command: Command) -> None:
    done = run(*command.words)
    assert (done.exit_code, done.stderr) == (command.code, "")
    assert command.shown in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.usefixtures("runs")
def test_json_is_alone_on_stdout_beside_a_file(command: Command, tmp_path: Path) -> None:
    file = tmp_path / command.file
    done = run(*command.words, "--json", command.option, file)
    assert done.exit_code == command.code
    assert isinstance(json.loads(done.stdout), dict)
    assert done.stderr == f"wrote {file}\n"
    assert file.read_bytes().lstrip().startswith(command.start)


@pytest.mark.parametrize("name", ["", "missing/"])
def test_where_no_file_can_be_is_said_before_the_run(
    command: Command, runs: Calls, tmp_path: Path, name: str
) -> None:
    where = tmp_path / name / command.file if name else tmp_path
    done = run(*command.words, command.option, where)
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"give {command.option} a file in a folder that exists" in done.stderr
    assert runs == []


def test_a_package_that_is_missing_is_named_before_the_run(
    command: Command, runs: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (command.drawn_by, "truenorm.tools.picture", "truenorm.verify.report.html"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for module in ("matplotlib", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, module, None)
    done = run(*command.words, command.option, tmp_path / command.file)
    assert done.exit_code == 2
    assert f"{command.option} needs the package matplotlib" in done.stderr
    assert "pip install 'truenorm[verify]'" in done.stderr
    assert runs == []


@pytest.mark.usefixtures("runs")
def test_a_file_that_cannot_be_written_does_not_cost_the_report(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", refuse)
    done = run(*command.words, command.option, tmp_path / command.file)
    assert done.exit_code == 2
    assert command.shown in done.stdout
    assert f"No space left on device; give {command.option} another file" in done.stderr


@pytest.mark.parametrize("name", ["a.jpg", "a"])
def test_where_a_picture_is_of_one_kind_another_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    writer_of("--png", tmp_path / "a.PNG", "truenorm.demo.page", ".png")
    with pytest.raises(SystemExit):
        writer_of("--png", tmp_path / name, "truenorm.demo.page", ".png")
    assert "give --png a file that ends in .png" in capsys.readouterr().err


def test_without_the_option_nothing_is_loaded_or_written() -> None:
    writer_of("--png", None, "no.such.module")("report")
