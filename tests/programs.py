"""Programs that run in a process of their own, and what they print."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import truenorm as tn

SOURCES = Path(tn.__file__).parents[1]
TESTS = Path(__file__).parent


def run_python(code: str, *arguments: str, seconds: float = 300, **variables: str) -> list[str]:
    """Return the lines that a program prints which ends well, in time and without complaints.

    It sees this package and the tests, and of Numba's and our variables only those given, and
    where compiled code is kept: else it would compile again what this process has compiled.
    """
    ours = ("NUMBA_", "TRUENORM_", "OMP_")
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


def run_on_terminal(code: str, *arguments: str, **variables: str) -> tuple[str, str]:
    """Return what a program that ends well prints, and what a terminal gets as its stderr."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "xterm", **variables},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as process:
        os.close(theirs)
        said = b""
        try:
            while some := os.read(ours, 1000):
                said += some
        except OSError:  # by which Linux says that the other end is closed
            pass
        os.close(ours)
        printed, _ = process.communicate()
    assert process.returncode == 0, said
    return printed, said.decode().replace("\r\n", "\n")
