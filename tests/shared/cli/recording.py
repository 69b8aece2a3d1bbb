"""Run commands: in this process with recorded calls, or in a new one."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from truenorm.cli.app import app

Calls = list[tuple[tuple[Any, ...], dict[str, Any]]]
TESTS = Path(__file__).parents[2]


def run(*words: object) -> Result:
    """Run the command with these arguments on a terminal of 80 columns."""
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "80"})


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python without variables of truenorm; it can import the helpers of the tests."""
    inherited = {name: value for name, value in os.environ.items() if "TRUENORM" not in name}
    folders = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, "PYTHONPATH": os.pathsep.join(filter(None, folders)), **environment},
    )


def run_main(before: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process, after some lines of Python."""
    script = f"{before}\nfrom truenorm.cli import main\nmain()"
    return run_python("-c", script, *arguments, **environment)


def record(monkeypatch: pytest.MonkeyPatch, function: str, *answers: object) -> Calls:
    """Replace a function by one that returns or raises the answers in turn; return its calls.

    The last answer is repeated.
    """
    calls: Calls = []

    def answer(*arguments: Any, **options: Any) -> object:
        calls.append((arguments, options))
        result = answers[min(len(calls), len(answers)) - 1]
        if isinstance(result, BaseException):
            raise result
        return result

    monkeypatch.setattr(function, answer)
    return calls
