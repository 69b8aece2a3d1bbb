"""``truenorm demo``: what it asks for, and how it refuses."""

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
    assert "float32, y: correct digits" in run().stdout
    done = run("--dtype", "float64", "--size", "7", "--seed", "3", "--output", "dgamma")
    assert "float32, dgamma: correct digits" in done.stdout
    assert "float32, y: correct digits" not in done.stdout
    assert asked == [
        {"dtypes": DTYPES, "size": 100, "seed": 0, "progress": None},
        {"dtypes": ("float64",), "size": 7, "seed": 3, "progress": None},
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
    asked: list[dict[str, Any]], wrong: list[str]
) -> None:
    assert run(*wrong).exit_code == 2
    assert asked == []
