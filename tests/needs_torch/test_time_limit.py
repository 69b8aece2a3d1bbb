"""Slow kernels within the time limit: Triton's interpreter takes milliseconds for a program."""

import json
import resource
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from shared.programs import python

pytest.importorskip("triton")
BUGS: dict[str, str] = import_module("needs_torch.triton_bugs").BUGS
FILE = Path(__file__).with_name("triton_bugs.py")
MOST = 90.0
"""Seconds of processor time of a verdict; on idle cores it takes no longer."""
SLOW = pytest.mark.slow(reason="a verdict on a slow kernel takes half a minute")


def judged(name: str) -> tuple[dict[str, Any], float]:
    """Return the report of a kernel by the interpreter, and the processor time of the run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ("-m", "truenorm", "verify", f"{FILE}:{name}", "--json")
    done = python(*command, seconds=900, TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
    assert done.returncode in (0, 1), done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), seconds


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=() if place == 0 else SLOW)
        for place, each in enumerate((*BUGS, "right"))
    ],
)
def test_one_program_a_row(name: str) -> None:
    """Without the limit, such a kernel took 18 minutes."""
    report, seconds = judged(name)
    assert seconds < MOST
    assert report["too_slow"]
    assert not any("slow" in each["symptom"] for each in report["findings"])
    assert report["verdicts"]["runs"] == "pass"
    if name == "right":
        assert report["passed"]
        return
    first = report["findings"][0]
    assert first["verdict"] == "accuracy"
    assert BUGS[name] in {each["id"] for each in first["causes"]}
