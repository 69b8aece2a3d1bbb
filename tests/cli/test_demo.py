"""``truenorm demo``: what it asks for, and how it refuses."""

from typing import get_args

import pytest

from cli.recording import recorded, run
from demo.reports import committed
from truenorm.cli import commands as command
from truenorm.demo.algorithms import OUTPUTS
from truenorm.demo.demonstration import DTYPES


def test_options_reach_the_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = recorded(monkeypatch, command, "demonstrate", committed())
    assert "float32, y: correct digits" in run("demo").stdout
    options = ("--dtype", "float64", "--size", 7, "--seed", 3, "--output", "dgamma")
    done = run("demo", *options)
    assert "float32, dgamma: correct digits" in done.stdout
    assert "float32, y: correct digits" not in done.stdout
    assert asked == [
        ((DTYPES,), {"size": 100, "seed": 0, "progress": None}),
        ((("float64",),), {"size": 7, "seed": 3, "progress": None}),
    ]


def test_choices_are_the_outputs() -> None:
    assert set(get_args(command.OutputName)) == set(OUTPUTS)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--size", "1"],
        ["--dtype", "float16"],
        ["--output", "dbeta"],
        ["--seed", "-1"],
        ["--png", "errors.jpg"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, wrong: list[str]
) -> None:
    asked = recorded(monkeypatch, command, "demonstrate", committed())
    assert run("demo", *wrong).exit_code == 2
    assert asked == []
