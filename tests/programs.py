"""Programs that run in a process of their own, and what they print."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import truenorm as tn

SOURCES = Path(tn.__file__).parents[1]
TESTS = Path(__file__).parent


def run_python(code: str, *arguments: str, seconds: float = 300, **variables: str) -> list[str]:
    """Return the lines that a program prints which ends well, in time and without complaints.

    It sees this package and the tests, and of our variables only those given, and where exact
    answers are cached.
    """
    ours = ("TRUENORM_", "OMP_")
    environment = {
        key: value
        for key, value in os.environ.items()
        if key == "TRUENORM_CACHE_DIR" or not key.startswith(ours)
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(SOURCES), str(TESTS)])
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *arguments],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if ran.returncode or ran.stderr:
        raise AssertionError(f"it ended with {ran.returncode}:\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout.splitlines()
