"""``python -m benchmarks.cost_model``: predicted times beside measured ones."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import truenorm as tn
from benchmarks.peer.process import all_cpu_seconds
from benchmarks.reference import Inputs, cast_passes, textbook_passes
from benchmarks.timing import asking_for, heading, machine
from truenorm.cost import Form, layer_norm_cost
from truenorm.tools import strict_json
from truenorm.tools.machine import Stopwatch, usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

ROUNDS = 9
SHAPES = ((4096, 4096), (8, 1024, 4096))
"""x of 67 and 134 MB in float32: no cache holds it."""
GOAL = 1.5
"""Either way, for the C core in fast mode, which is what memory should limit."""
RESULTS = Path(__file__).parent / "results" / "cost_model.json"
QUIET = 0.1
"""Cores that other programs may take on average."""
ONE, ALL = "copy, one thread", "copy, all threads"

Call = Callable[[], object]


@dataclass(frozen=True)
class Contestant:
    """Who is measured, and which prediction it is held against."""

    name: str
    form: Form
    copy: str
    passes: dict[str, Call]
    casts: bool = False

    def bytes_moved(self, shape: tuple[int, ...], direction: str) -> int:
        """Return what the model says; a cast reads one type and writes the other, twice a pass."""
        cost = layer_norm_cost(
            shape,
            "float64" if self.casts else "float32",
            self.form,
            "xhat" if self.form == "textbook" else "x",
        )
        counted = cost.passes[direction]
        return counted.bytes_moved + (2 * (4 + 8) * math.prod(shape) if self.casts else 0)


@dataclass(frozen=True)
class Line:
    """One contestant in one direction: its prediction and its time."""

    shape: tuple[int, ...]
    contestant: str
    direction: str
    megabytes_moved: float
    predicted_ms: float
    measured_ms: float
    ratio: float
    within_goal: bool | None


def copies(x: Any, out: Any, threads: int) -> dict[str, Call]:
    """Return copies that do what `truenorm.cost.measure_bandwidth` does."""
    pool = ThreadPoolExecutor(threads)
    parts = [np.array_split(array.reshape(-1), threads) for array in (out, x)]
    return {
        ONE: partial(np.copyto, out, x),
        ALL: lambda: list(pool.map(np.copyto, *parts)),
    }


def contestants(given: Inputs, out: Any, threads: int) -> Iterator[Contestant]:
    """Yield everyone: NumPy has one thread, and its copy too."""

    def truenorm(backend: str, rounding: str) -> dict[str, Call]:
        how: dict[str, Any] = {"backend": backend, "threads": threads, "out": out}
        forward = partial(
            tn.layer_norm_forward, given.x, given.gamma, given.beta, rounding=rounding, **how
        )
        saved = forward()[1]
        return {
            "forward": forward,
            "backward": partial(tn.layer_norm_backward, given.dy, saved, **how),
        }

    yield Contestant("native, fast", "fused", ALL, truenorm("native", "fast"))
    yield Contestant("native, correct", "fused", ALL, truenorm("native", "correct"))
    yield Contestant("reference, fast", "blocked", ONE, truenorm("reference", "fast"))
    directions = ("forward", "backward")
    plain, cast = (
        dict(zip(directions, make(given), strict=True)) for make in (textbook_passes, cast_passes)
    )
    yield Contestant("textbook", "textbook", ONE, plain)
    yield Contestant("textbook in float64, then cast", "textbook", ONE, cast, casts=True)


def measure(shape: tuple[int, ...], threads: int, rounds: int) -> Iterator[Line]:
    """Let all take turns, and hold each against the copy that has as many threads."""
    given = Inputs.normal(shape, np.float32, 0)
    out = np.zeros_like(given.x)
    found = list(contestants(given, out, threads))
    calls = copies(given.x, out, threads) | {
        f"{each.name} {direction}": call
        for each in found
        for direction, call in each.passes.items()
    }
    for call in calls.values():
        call()  # warm up
    watch, shuffle = Stopwatch(), random.Random(0)
    for turn in range(rounds):
        status_line(f"{shape}: {turn + 1} of {rounds}")
        # What a contestant leaves in the cache is not always for the same one.
        watch.go_round(dict(shuffle.sample(list(calls.items()), len(calls))))
    status_line()
    for each in found:
        bandwidth = 2 * given.x.nbytes / watch.p50(each.copy)
        for direction in each.passes:
            moved = each.bytes_moved(shape, direction)
            measured, predicted = watch.p50(f"{each.name} {direction}"), moved / bandwidth
            ratio = measured / predicted
            within = 1 / GOAL <= ratio <= GOAL if each.name == "native, fast" else None
            yield Line(
                shape, each.name, direction, moved / 1e6, predicted * 1e3, measured * 1e3,
                ratio, within,
            )  # fmt: skip


def report_of(lines: list[Line]) -> str:
    """Return the table of one shape."""
    head = ["", "MB moved", "predicted ms", "measured ms", "ratio", ""]
    rows = [
        [
            f"{line.contestant} {line.direction}",
            f"{line.megabytes_moved:,.0f}",
            f"{line.predicted_ms:.1f}",
            f"{line.measured_ms:.1f}",
            f"{line.ratio:.2f}",
            "" if line.within_goal is None else "within" if line.within_goal else "missed",
        ]
        for line in lines
    ]
    return f"float32 {lines[0].shape}\n{table(head, rows)}"


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.cost_model",
        description="Hold the times that truenorm.cost predicts against measured ones.",
    )
    described.add_argument("--json", action="store_true", help="print what --output gets")
    described.add_argument("--output", type=Path, default=RESULTS, help="the JSON file to write")
    described.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each contestant")
    described.add_argument("--threads", type=int, default=usable_cores())
    return described.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = arguments_of(argv)
    # The benchmark of the reference backend, imported above, has asked for one thread.
    os.environ.update(asking_for(arguments.threads))
    where = machine(arguments.threads)
    if not arguments.json:
        print(heading(where), f"rounds   {arguments.rounds}", sep="\n", flush=True)
    lines: list[Line] = []
    begun, busy, own = time.perf_counter(), all_cpu_seconds(), time.process_time()
    for shape in SHAPES:
        found = list(measure(shape, arguments.threads, arguments.rounds))
        lines += found
        if not arguments.json:
            print("", report_of(found), sep="\n", flush=True)
    others = all_cpu_seconds() - busy - (time.process_time() - own)
    taken = max(0.0, others / (time.perf_counter() - begun))
    if not arguments.json:
        quiet = "" if taken <= QUIET else " NOT QUIET: run it again"
        print(f"\ncores taken by other programs: {taken:.2f}{quiet}")
    report = {
        "machine": where,
        "rounds": arguments.rounds,
        "cores_taken_by_others": taken,
        "goal": GOAL,
        "lines": [asdict(line) for line in lines],
    }
    text = strict_json.write(report, arguments.output)
    if arguments.json:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
