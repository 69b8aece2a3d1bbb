"""``python -m benchmarks.family_cost``: what difficult rows cost, relative to normal ones."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import Stopwatch, machine, table

# The families are those of the tests, which are no installed package: one list for both, so that
# what is proved right there is what is timed here. The tests have "tests" on their path too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

# isort: split
import numpy as np

import truenorm as tn
from promise.families import (
    DY_KINDS,
    EPSILONS,
    X_FAMILIES,
    Case,
    dy_of,
    parameter_of,
    x_of,
)
from promise.hard_cases import OUTPUTS, hard_cases, hard_elements

ROWS, WIDTHS = 64, (512, 513)
COLUMNS = [f"{name} {size}" for size in WIDTHS for name in ("forward", "backward")]
MOST_ROUNDS, LEAST_ROUNDS, SECONDS_PER_LINE = 15, 3, 0.8
LIMIT, GOAL = 2.0, 100.0
HARD_ELEMENTS = 3000
Pass = Callable[[], object]


@dataclass(frozen=True)
class Data:
    """One line of the table: what x, dy, gamma and beta are like."""

    name: str
    x: str = "normal"
    dy: str = "random"
    plain_parameters: bool = False  # gamma 1 and beta 0 in place of random ones
    eps: float = 1e-5
    allowed: float = GOAL

    def build(self, dtype: np.dtype[Any], size: int) -> Case:
        """Make the arrays."""
        x = x_of(self.x, dtype, ROWS, size, 0)
        by_value = {"ones": 1, "zeros": 0}
        if self.dy in by_value:
            dy = np.full_like(x, by_value[self.dy])
        elif self.dy == "integers":
            dy = x_of("integers", dtype, ROWS, size, 1)
        else:
            dy = dy_of(self.dy, x, 0)
        gamma, beta = (parameter_of("random", dtype, size, seed) for seed in (0, 1))
        if self.plain_parameters:
            gamma, beta = np.ones(size, dtype), np.zeros(size, dtype)
        return Case(self.name, x, gamma, beta, dy, self.eps)


def lines() -> Iterator[Data]:
    """Every family, every kind of dy, every eps; and the kinds that may cost at most twice."""
    plain = ", gamma 1, beta 0"
    yield Data(f"dy 1{plain} (y.sum())", dy="ones", plain_parameters=True, allowed=LIMIT)
    for family in ("zero", "integers"):
        yield Data(f"x {family}", family, allowed=LIMIT)
        yield Data(f"x {family}{plain}", family, plain_parameters=True, allowed=LIMIT)
    yield Data("x zero, dy 0", "zero", "zeros", allowed=LIMIT)
    yield Data(
        f"x integers, dy 1{plain}", "integers", "ones", plain_parameters=True, allowed=LIMIT
    )
    yield Data(
        f"x integers, dy integers{plain}",
        "integers", "integers", plain_parameters=True, allowed=LIMIT,
    )  # fmt: skip
    for family in X_FAMILIES:
        if family not in ("normal", "zero", "integers"):
            yield Data(f"x {family}", family)
    for kind in DY_KINDS:
        if kind != "random":
            yield Data(f"dy {kind}", dy=kind)
    yield Data(f"dy proportional{plain}", dy="proportional", plain_parameters=True)
    # Rows x and -x with one dy: every element of dgamma is exactly zero, and only integers know.
    yield Data("x mirrored, dy same_in_all_rows", "mirrored", "same_in_all_rows")
    for eps in EPSILONS:
        if eps != 1e-5:
            yield Data(f"eps {eps:g}", eps=eps)
    for family in ("integers", "plus_minus_one", "scale_subnormal"):
        yield Data(f"x {family}, eps 0", family, eps=0.0)


def passes(case: Case) -> tuple[Pass, Pass]:
    """Return forward and backward of a case; making them warms them up."""

    def forward() -> tuple[Any, tn.Saved]:
        return tn.layer_norm_forward(
            case.x, case.gamma, case.beta, eps=case.eps, backend="reference"
        )

    saved = forward()[1]

    def backward() -> tn.Gradients:
        return tn.layer_norm_backward(case.dy, saved, backend="reference")

    backward()
    return forward, backward


def relative_cost(case: Case, normal: tuple[Pass, Pass]) -> dict[str, float]:
    """Return the time of forward and backward in units of that of normal data."""
    forward, backward = passes(case)
    contestants = {
        "forward normal": normal[0],
        "forward": forward,
        "backward normal": normal[1],
        "backward": backward,
    }
    watch, spent = Stopwatch(), 0.0
    while watch.rounds < LEAST_ROUNDS or (watch.rounds < MOST_ROUNDS and spent < SECONDS_PER_LINE):
        spent += watch.go_round(contestants)
    return {name: watch.ratio(name, f"{name} normal") for name in ("forward", "backward")}


def cost_of_lines(dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    """Return a record for each line, the dearest first."""
    normal = {size: passes(Data("normal").build(dtype, size)) for size in WIDTHS}
    records = []
    for line in lines():
        record: dict[str, Any] = {"data": line.name, "allowed": line.allowed}
        for size in WIDTHS:
            found = relative_cost(line.build(dtype, size), normal[size])
            record |= {f"{name} {size}": ratio for name, ratio in found.items()}
        record["worst"] = max(record[column] for column in COLUMNS)
        records.append(record)
    return sorted(records, key=lambda record: -record["worst"])


def cost_of_hard_cases(dtype: np.dtype[Any]) -> Iterator[dict[str, Any]]:
    """Yield, for each output, what its hard cases cost relative to normal data of their shapes."""
    for output in OUTPUTS:
        which = 0 if output == "y" else 1
        hard, spent, normal = 0, 0.0, 0.0
        for case in hard_cases(output, dtype, HARD_ELEMENTS):
            rows, size = case.x.shape
            easy_x = x_of("normal", dtype, rows, size, 0)
            gamma, beta = (
                None if given is None else parameter_of("random", given.dtype, size, seed)
                for seed, given in enumerate((case.gamma, case.beta))
            )
            easy = Case("normal", easy_x, gamma, beta, dy_of("random", easy_x, 0), 1e-5)
            watch = Stopwatch()
            contestants = {"hard": passes(case)[which], "normal": passes(easy)[which]}
            for _ in range(LEAST_ROUNDS):
                watch.go_round(contestants)
            hard += hard_elements(case, output)
            spent += watch.p50("hard")
            normal += watch.p50("normal")
        extra = (spent - normal) / hard * 1e6
        yield {"output": output, "hard": hard, "ratio": spent / normal, "extra_us": extra}


def report_of(dtype: np.dtype[Any]) -> str:
    """Measure one type and return its tables."""
    normal = Stopwatch()
    forward, backward = passes(Data("normal").build(dtype, WIDTHS[0]))
    for _ in range(MOST_ROUNDS):
        normal.go_round({"forward": forward, "backward": backward})
    elements = ROWS * WIDTHS[0]
    cost = {name: normal.p50(name) / elements * 1e9 for name in normal.seconds}
    records = cost_of_lines(dtype)
    rows = [
        [
            record["data"],
            *(f"{record[column]:.2f}" for column in COLUMNS),
            f"{record['allowed']:.0f}x",
            "ABOVE" if record["worst"] > record["allowed"] else "",
        ]
        for record in records
    ]
    hard = [
        [f"hard cases of {each['output']}", str(each["hard"]), f"{each['ratio']:.1f}",
         f"{each['extra_us']:.1f}"]
        for each in cost_of_hard_cases(dtype)
    ]  # fmt: skip
    return "\n".join([
        f"{dtype.name}, {ROWS} rows; normal data (1.00) at D = {WIDTHS[0]}: "
        f"forward {cost['forward']:.0f}, backward {cost['backward']:.0f} ns/element",
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
    arguments = described.parse_args(argv)
    types = [np.dtype(name) for name in arguments.dtype or ("float32", "float64")]
    if arguments.json:
        report: dict[str, Any] = {"machine": machine()}
        for dtype in types:
            report[dtype.name] = {
                "families": cost_of_lines(dtype),
                "hard_cases": list(cost_of_hard_cases(dtype)),
            }
        print(json.dumps(report, allow_nan=False, indent=2))
        return 0
    print("\n".join(f"{name:9s}{value}" for name, value in machine().items()), end="\n\n")
    for dtype in types:
        print(report_of(dtype), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
