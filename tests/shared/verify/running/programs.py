"""Run programs as subjects, and look at processes by their id."""

import time
from pathlib import Path

import numpy as np
import pytest

from truenorm.verify.calls import Call
from truenorm.verify.operations import layer_norm_case
from truenorm.verify.running.command import CommandRunner
from truenorm.verify.running.records import Record
from truenorm.verify.subject import Subject

needs_proc = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes in /proc"
)
_RANDOM = np.random.default_rng(11)
_X, _DY = _RANDOM.standard_normal((2, 6, 4)).astype(np.float32)
_GAMMA, _BETA = _RANDOM.standard_normal((2, 4)).astype(np.float32)
CASE = layer_norm_case("plain", (_X, _GAMMA, _BETA, _DY), eps=0.125)


def run(*command: str, call: Call | None = None, seconds: float = 30.0) -> Record:
    return CommandRunner(Subject(command=command, seconds=seconds)).run(CASE, call or Call())


def shell(script: str, seconds: float = 30.0) -> Record:
    """Run a shell script, in which $0 is the private folder."""
    return run("sh", "-c", script, seconds=seconds)


def is_running(pid: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def ends(pid: int) -> bool:
    """Return True if a process ends within five seconds."""
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_running(pid)
