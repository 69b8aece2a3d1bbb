"""``python -m benchmarks.first_calls``: what the first calls of a process take, cold and warm.

Cold, nothing is kept from before and kernels are compiled; warm, the next process loads them. The
calls are both passes in both modes on 64 rows of 1024 normal float32 numbers, with gamma and beta.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

GOALS = {"cold": 15.0, "warm": 0.15}
"""Seconds of processor time, of all four calls together beyond `import numba`."""

CALLS = """
import json, time
import numba
import numpy as np

before = time.process_time()
import truenorm as tn
from truenorm.kernels.fused.compiling import TALLY

random = np.random.default_rng(0)
x, dy = random.standard_normal((2, 64, 1024), np.float32)
parameters = np.ones((2, 1024), np.float32)
found, done = {}, dict(TALLY)

def note(name):
    global before, done
    now = time.process_time()
    more = {key: TALLY[key] - done.get(key, 0) for key in ("compiled", "loaded")}
    found[name] = {"seconds": now - before, **more}
    before, done = now, dict(TALLY)

for rounding in ("correct", "fast"):
    _, saved = tn.layer_norm_forward(x, *parameters, rounding=rounding, backend="fused")
    note(f"{rounding} forward")
    tn.layer_norm_backward(dy, saved, backend="fused")
    note(f"{rounding} backward")
print(json.dumps(found))
"""
"""The first call has what importing truenorm takes."""

FIRST_OF_NATIVE = """
import time
import numpy as np
import truenorm as tn

x, gamma = np.ones((64, 1024), np.float32), np.ones(1024, np.float32)
before = time.perf_counter()
tn.layer_norm(x, gamma, gamma, backend="native")
print(time.perf_counter() - before)
"""
GOAL_OF_NATIVE = 0.030
"""Seconds on the clock, with all imports that the call needs."""


def measure(code: str, **variables: str) -> Any:
    """Make calls in a fresh process, and return what it prints."""
    # Python keeps byte code, as an installation does: the second process has it.
    others = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=others | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout)


def first_of_native(rounds: int) -> list[float]:
    """Return the seconds of the first call in so many processes, after one that warms up."""
    return [measure(FIRST_OF_NATIVE) for _ in range(rounds + 1)][1:]


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run that took least: a busy machine only adds to what calls take."""
    return min(runs, key=lambda run: sum(call["seconds"] for call in run.values()))


def report_of(state: str, run: dict[str, Any]) -> str:
    """Return a table of calls."""
    rows = [
        [name, f"{call['seconds']:.3f}", str(call["compiled"]), str(call["loaded"])]
        for name, call in run.items()
    ]
    total = sum(call["seconds"] for call in run.values())
    missed = "missed" if total > GOALS[state] else ""
    rows.append(["all", f"{total:.3f}", f"goal {GOALS[state]:g}", missed])
    return table([state, "processor s", "compiled", "loaded"], rows)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.first_calls",
        description="Measure the first calls of a process.",
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--rounds", type=int, default=3, help="the best of so many is printed")
    described.add_argument("--backend", choices=["native", "fused"], default="fused")
    arguments = described.parse_args(argv)
    if arguments.backend == "native":
        times = first_of_native(arguments.rounds)
        where = machine(usable_cores())
        if arguments.json:
            print(strict_json.dumps({"machine": where, "goal": GOAL_OF_NATIVE, "seconds": times}))
            return 0
        said = f"median {1e3 * median(times):.1f} ms, slowest {1e3 * max(times):.1f} ms"
        print(heading(where), f"first call after imports: {said}; goal 30 ms", sep="\n\n")
        return 0
    runs: dict[str, list[dict[str, Any]]] = {state: [] for state in GOALS}
    for k in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as place:
            for state, found in runs.items():
                status_line(f"round {k + 1} of {arguments.rounds}, {state}")
                found.append(measure(CALLS, TRUENORM_CACHE_DIR=place))
    status_line()
    where = machine(usable_cores())
    if arguments.json:
        print(strict_json.dumps({"machine": where, "goals": GOALS, **runs}))
        return 0
    print(heading(where), *(report_of(state, best(runs[state])) for state in runs), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
