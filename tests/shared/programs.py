"""Run Python programs in other processes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import truenorm as tn

SOURCES = Path(tn.__file__).parents[1]
TESTS = Path(__file__).parents[1]


def python(
    *arguments: str | Path, folder: Path | None = None, seconds: float = 300, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python with arguments and the variables of this process, and others."""
    command, environment = [sys.executable, *map(str, arguments)], os.environ | variables
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
    )


def run_python(code: str, *arguments: str, seconds: float = 300, **variables: str) -> list[str]:
    """Return the lines that a program prints; it must succeed in time and without warnings.

    It can import this package and the tests. Of the variables TRUENORM_* and OMP_* it has only
    `variables`, and the folder of cached answers.
    """
    prefixes = ("TRUENORM_", "OMP_")
    environment = {
        key: value
        for key, value in os.environ.items()
        if key == "TRUENORM_CACHE_DIR" or not key.startswith(prefixes)
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCES), str(TESTS)])
    completed = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if completed.returncode or completed.stderr:
        output = f"{completed.stdout}\n{completed.stderr}"
        raise AssertionError(f"exit code {completed.returncode}:\n{output}")
    return completed.stdout.splitlines()
