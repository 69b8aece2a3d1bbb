"""Commands whose work is done at once: what was asked for is kept, and the answer is ready."""

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli.app import app

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "80"})


def recorded(
    monkeypatch: pytest.MonkeyPatch, module: object, function: str, *answers: object
) -> Calls:
    """Put another function in place, and return its calls; the last answer is for ever."""
    calls: Calls = []

    def answer(*given: Any, **options: Any) -> object:
        calls.append((given, options))
        found = answers[min(len(calls), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(module, function, answer)
    return calls
