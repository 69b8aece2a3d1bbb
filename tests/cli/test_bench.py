"""``truenorm bench``: what it asks for, and how it refuses."""

import json
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bench.made_up import report
from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES
from truenorm.cli import bench as command
from truenorm.cli.app import app

Asked = list[tuple[Any, dict[str, Any]]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Return what is asked to be measured; nothing is."""
    calls: Asked = []

    def measure(shapes: Any, **options: Any) -> Any:
        calls.append((shapes, options))
        return report()

    monkeypatch.setattr(command, "measure", measure)
    return calls


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


def test_options_are_passed_on(asked: Asked) -> None:
    run()
    run("2x3", "4x5x6", "--dtype", "float16", "--threads", "3", "--rounds", "9")
    plain = {"dtype": "float32", "threads": None, "rounds": DEFAULT_ROUNDS, "progress": None}
    other = {"dtype": "float16", "threads": 3, "rounds": 9, "progress": None}
    assert asked == [(DEFAULT_SHAPES, plain), ([(2, 3), (4, 5, 6)], other)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["2x"], "no shape: give whole numbers"),
        (["--threads", "0"], "--threads"),
        (["--rounds", "0"], "--rounds"),
        (["--dtype", "float8"], "--dtype"),
    ],
)
def test_refusals(asked: Asked, arguments: list[str], words: str) -> None:
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
