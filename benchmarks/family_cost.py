"""``python -m benchmarks.family_cost``: what difficult rows cost, relative to normal ones."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.timing import asking_for, heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import Stopwatch
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

os.environ.update(asking_for(threads=1))
# Only now, since NumPy's libraries look once.
# isort: split
import numpy as np

import truenorm as tn
from benchmarks.family_lines import TERMS, Data, lines

# Only now, since family_lines has put the tests on the path.
# isort: split
from promise.families import Case, make_dy, make_parameter, make_x
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements

WIDTHS = (512, 513)
COLUMNS = [f"{name} {size}" for size in WIDTHS for name in ("forward", "backward")]
MOST_ROUNDS, LEAST_ROUNDS, SECONDS_PER_LINE = 15, 3, 0.8
HARD_ELEMENTS = 3000
Pass = Callable[[], object]


def passes(case: Case, backend: str) -> tuple[Pass, Pass]:
    """Return forward and backward of a case; making them warms them up."""

    def forward() -> tuple[Any, tn.Saved]:
        return tn.layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps, backend=backend)

    saved = forward()[1]

    def backward() -> tn.Gradients:
        return tn.layer_norm_backward(case.dy, saved, backend=backend)

    backward()
    return forward, backward


def relative_cost(line: tuple[Pass, Pass], normal: tuple[Pass, Pass]) -> dict[str, float]:
    """Return the time of forward and backward in units of that of normal data."""
    contestants = {
        "forward normal": normal[0],
        "forward": line[0],
        "backward normal": normal[1],
        "backward": line[1],
    }
    watch, spent = Stopwatch(), 0.0
    while watch.rounds < LEAST_ROUNDS or (watch.rounds < MOST_ROUNDS and spent < SECONDS_PER_LINE):
        spent += watch.go_round(contestants)
    return {name: watch.ratio(name, f"{name} normal") for name in ("forward", "backward")}


def cost_of_lines(dtype: np.dtype[Any], backend: str) -> list[dict[str, Any]]:
    """Return a record for each line, the dearest first."""
    terms = TERMS[backend]

    def ready(line: Data, size: int) -> tuple[Pass, Pass]:
        return passes(line.build(dtype, terms.rows, size), backend)

    normal = {size: ready(Data("normal"), size) for size in WIDTHS}
    records = []
    for line in lines():
        status_line(f"{dtype.name}: {line.name}")
        record: dict[str, Any] = {
            "data": line.name,
            "allowed": terms.limit if line.common else terms.goal,
        }
        for size in WIDTHS:
            found = relative_cost(ready(line, size), normal[size])
            record |= {f"{name} {size}": ratio for name, ratio in found.items()}
        record["worst"] = max(record[column] for column in COLUMNS)
        records.append(record)
    status_line()
    return sorted(records, key=lambda record: -record["worst"])


def cost_of_hard_cases(dtype: np.dtype[Any], backend: str) -> Iterator[dict[str, Any]]:
    """Yield, for each output, what its hard cases cost relative to normal data of their shapes."""
    for output in OUTPUTS:
        status_line(f"{dtype.name}: hard cases of {output}")
        which = 0 if output == "y" else 1
        hard, spent, normal = 0, 0.0, 0.0
        for case in hard_cases(output, dtype, HARD_ELEMENTS):
            rows, size = case.x.shape
            easy_x = make_x("normal", dtype, rows, size, 0)
            gamma, beta = (
                None if given is None else make_parameter("random", given.dtype, size, seed)
                for seed, given in enumerate((case.gamma, case.beta))
            )
            easy = Case("normal", easy_x, gamma, beta, make_dy("random", easy_x, 0), 1e-5)
            watch = Stopwatch()
            contestants = {
                "hard": passes(case, backend)[which],
                "normal": passes(easy, backend)[which],
            }
            for _ in range(LEAST_ROUNDS):
                watch.go_round(contestants)
            hard += hard_elements(case, output)
            spent += watch.p50("hard")
            normal += watch.p50("normal")
        extra = (spent - normal) / hard * 1e6
        yield {"output": output, "hard": hard, "ratio": spent / normal, "extra_us": extra}
    status_line()


def cost_of_normal_data(dtype: np.dtype[Any], backend: str) -> dict[str, float]:
    """Return nanoseconds per element, what all ratios are relative to."""
    rows, watch = TERMS[backend].rows, Stopwatch()
    forward, backward = passes(Data("normal").build(dtype, rows, WIDTHS[0]), backend)
    for _ in range(MOST_ROUNDS):
        watch.go_round({"forward": forward, "backward": backward})
    return {name: watch.p50(name) / (rows * WIDTHS[0]) * 1e9 for name in watch.seconds}


def measure(name: str, backend: str) -> dict[str, Any]:
    """Measure one type."""
    dtype = np.dtype(name)
    return {
        "backend": backend,
        "rows": TERMS[backend].rows,
        "normal_ns_per_element": cost_of_normal_data(dtype, backend),
        "families": cost_of_lines(dtype, backend),
        "hard_cases": list(cost_of_hard_cases(dtype, backend)),
    }


def report_of(name: str, measured: dict[str, Any]) -> str:
    """Return the tables of one type."""
    normal = measured["normal_ns_per_element"]
    rows = [
        [
            record["data"],
            *(f"{record[column]:.2f}" for column in COLUMNS),
            f"{record['allowed']:.0f}x",
            "ABOVE" if record["worst"] > record["allowed"] else "",
        ]
        for record in measured["families"]
    ]
    hard = [
        [f"hard cases of {each['output']}", str(each["hard"]), f"{each['ratio']:.1f}",
         f"{each['extra_us']:.1f}"]
        for each in measured["hard_cases"]
    ]  # fmt: skip
    return "\n".join([
        f"{name}, {measured['backend']}, {measured['rows']} rows; normal data (1.00) at "
        f"D = {WIDTHS[0]}: forward {normal['forward']:.3g}, backward {normal['backward']:.3g} "
        f"ns/element",
        table(["relative to normal data", *COLUMNS, "allowed", ""], rows),
        "",
        table(["constructed, no limit", "hard elements", "ratio", "extra us each"], hard),
        "",
    ])  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.family_cost",
        description="Time difficult rows against normal ones, in correct rounding.",
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--dtype", action="append", help="float32 and float64 if not given")
    described.add_argument("--backend", choices=list(TERMS), default="reference")
    arguments = described.parse_args(argv)
    names = arguments.dtype or ["float32", "float64"]
    if arguments.json:
        report = {name: measure(name, arguments.backend) for name in names}
        print(strict_json.dumps({"machine": machine(), **report}))
        return 0
    print(heading(machine()), end="\n\n")
    for name in names:
        print(report_of(name, measure(name, arguments.backend)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
