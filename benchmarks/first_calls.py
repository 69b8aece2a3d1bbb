"""``python -m benchmarks.first_calls``: what the first call of a process takes."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import os
import subprocess
import sys
from statistics import median

from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores

FIRST_CALL = """
import time
import numpy as np
import truenorm as tn

x, gamma = np.ones((64, 1024), np.float32), np.ones(1024, np.float32)
before = time.perf_counter()
tn.layer_norm(x, gamma, gamma, backend="native")
print(time.perf_counter() - before)
"""
GOAL = 0.030
"""Seconds on the clock, with all imports that the call needs."""


def measure() -> float:
    """Make the call in a fresh process, and return how many seconds it took."""
    # Python keeps byte code, as an installation does: the second process has it.
    others = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", FIRST_CALL]
    return float(subprocess.check_output(command, env=others, text=True))


def first_calls(rounds: int) -> list[float]:
    """Return the seconds of the first call in so many processes, after one that warms up."""
    return [measure() for _ in range(rounds + 1)][1:]


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.first_calls",
        description="Measure the first calls of a process.",
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--rounds", type=int, default=3, help="processes that are timed")
    arguments = described.parse_args(argv)
    times = first_calls(arguments.rounds)
    where = machine(usable_cores())
    if arguments.json:
        print(strict_json.dumps({"machine": where, "goal": GOAL, "seconds": times}))
        return 0
    said = f"median {1e3 * median(times):.1f} ms, slowest {1e3 * max(times):.1f} ms"
    print(heading(where), f"first call after imports: {said}; goal 30 ms", sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
