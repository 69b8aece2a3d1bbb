"""``truenorm bench``: what it asks for, and how it refuses."""

import json
import subprocess
import sys

import pytest

from bench.made_up import report
from cli.recording import recorded, run
from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES
from truenorm.cli import commands as command


def test_options_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, command, "measure", report())
    run("bench")
    options = ["--operation", "rms_norm", "--dtype", "float16", "--threads", 3, "--rounds", 9]
    run("bench", "2x3", "4x5x6", *options)
    plain: dict[str, object] = {"operation": "layer_norm", "dtype": "float32", "threads": None}
    plain |= {"rounds": DEFAULT_ROUNDS, "progress": None}
    other: dict[str, object] = {"operation": "rms_norm", "dtype": "float16", "threads": 3}
    other |= {"rounds": 9, "progress": None}
    assert asked == [((DEFAULT_SHAPES,), plain), (([(2, 3), (4, 5, 6)],), other)]


@pytest.mark.parametrize(
    ("arguments", "words", "asked"),
    [
        (["2x"], "no shape: give whole numbers", 0),
        (["--threads", "0"], "--threads", 0),
        (["--rounds", "0"], "--rounds", 0),
        (["--dtype", "float8"], "--dtype", 0),
        ([], "unset it", 1),
        ([], "a smaller one", 1),
    ],
)
def test_refusals(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str, asked: int
) -> None:
    refusal = MemoryError() if words == "a smaller one" else ValueError(words)
    calls = recorded(monkeypatch, command, "measure", refusal)
    done = run("bench", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(calls) == asked


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
