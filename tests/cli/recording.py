"""Run commands with the functions they call replaced by recorders."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli.app import app

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


def run(*words: object) -> Result:
    """Run the command with these arguments on a terminal of 80 columns."""
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "80"})


def record(monkeypatch: pytest.MonkeyPatch, function: str, *answers: object) -> Calls:
    """Replace a function by one that returns or raises the answers in turn; return its calls.

    The last answer is repeated.
    """
    calls: Calls = []

    def answer(*arguments: Any, **options: Any) -> object:
        calls.append((arguments, options))
        result = answers[min(len(calls), len(answers)) - 1]
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(function, answer)
    return calls
