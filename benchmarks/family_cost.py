"""``python -m benchmarks.family_cost``: time difficult rows relative to normal ones.

Correct rounding, one thread. Each line is a family of x of the tests, a kind of dy or an eps.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchmarks.common import heading, machine, options, thread_variables
from benchmarks.stopwatch import Stopwatch
from truenorm.tools import strict_json
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

os.environ.update(thread_variables(1))  # before NumPy, whose libraries read it once
import numpy as np

import truenorm as tn
from shared.promise.families import (
    DY_KINDS,
    EPSILONS,
    X_FAMILIES,
    Case,
    make_dy,
    make_parameter,
    make_x,
)
from shared.promise.hard_cases import OUTPUTS, hard_cases, hard_elements

WIDTHS = (512, 513)
COLUMNS = [f"{name} {size}" for size in WIDTHS for name in ("forward", "backward")]
MOST_ROUNDS, LEAST_ROUNDS, SECONDS_PER_LINE = 15, 3, 0.8
HARD_ELEMENTS = 3000
Passes = tuple[Callable[[], object], Callable[[], object]]


class Terms(NamedTuple):
    """Rows of a backend's cases, and its limits in units of normal data.

    A fast backend has more rows, or the ratio would measure the cost of a call.
    """

    rows: int
    limit: float  # of inputs that are frequent in practice
    goal: float


TERMS = {"reference": Terms(64, 2.0, 100.0), "native": Terms(512, 2.0, 20.0)}


@dataclass(frozen=True)
class Data:
    """One line of the table: the kinds of x, dy, gamma and beta."""

    name: str
    x: str = "normal"
    dy: str = "random"
    unit_parameters: bool = False  # gamma 1 and beta 0 instead of random ones
    eps: float = 1e-5
    common: bool = False  # frequent in practice, such as the gradient of y.sum()

    def passes(self, dtype: np.dtype[Any], rows: int, size: int, backend: str) -> Passes:
        """Return forward and backward on these arrays."""
        x = make_x(self.x, dtype, rows, size, 0)
        if self.dy in ("ones", "zeros"):
            dy = np.full_like(x, self.dy == "ones")
        elif self.dy == "integers":
            dy = make_x("integers", dtype, rows, size, 1)
        else:
            dy = make_dy(self.dy, x, 0)
        gamma, beta = (make_parameter("random", dtype, size, seed) for seed in (0, 1))
        if self.unit_parameters:
            gamma, beta = np.ones(size, dtype), np.zeros(size, dtype)
        return passes(Case(self.name, x, gamma, beta, dy, self.eps), backend)


def lines() -> Iterator[Data]:
    """Yield the common kinds, then every family of x, every kind of dy and every eps."""
    unit = ", gamma 1, beta 0"
    yield Data(f"dy 1{unit} (y.sum())", dy="ones", unit_parameters=True, common=True)
    for family in ("zero", "integers"):
        yield Data(f"x {family}", family, common=True)
        yield Data(f"x {family}{unit}", family, unit_parameters=True, common=True)
    yield Data("x zero, dy 0", "zero", "zeros", common=True)
    for dy, name in (("ones", "dy 1"), ("integers", "dy integers")):
        yield Data(f"x integers, {name}{unit}", "integers", dy, unit_parameters=True, common=True)
    for family in X_FAMILIES:
        if family not in ("normal", "zero", "integers"):
            yield Data(f"x {family}", family)
    for kind in DY_KINDS:
        if kind != "random":
            yield Data(f"dy {kind}", dy=kind)
    yield Data(f"dy proportional{unit}", dy="proportional", unit_parameters=True)
    # Rows x and -x with one dy: dgamma is exactly zero everywhere, which only tier 3 decides.
    yield Data("x mirrored, dy same_in_all_rows", "mirrored", "same_in_all_rows")
    for eps in EPSILONS:
        if eps != 1e-5:
            yield Data(f"eps {eps:g}", eps=eps)
    for family in ("integers", "plus_minus_one", "scale_subnormal"):
        yield Data(f"x {family}, eps 0", family, eps=0.0)


def passes(case: Case, backend: str) -> Passes:
    """Return forward and backward of a case, each called once to warm up."""

    def forward() -> tuple[Any, tn.Saved]:
        return tn.layer_norm_forward(case.x, case.gamma, case.beta, eps=case.eps, backend=backend)

    saved = forward()[1]

    def backward() -> tn.Gradients:
        return tn.layer_norm_backward(case.dy, saved, backend=backend)

    backward()
    return forward, backward


def cost_of_lines(dtype: np.dtype[Any], backend: str) -> list[dict[str, Any]]:
    """Return a record for each line, the most expensive first."""
    rows, limit, goal = TERMS[backend]
    normal = {size: Data("normal").passes(dtype, rows, size, backend) for size in WIDTHS}
    records = []
    for line in lines():
        status_line(f"{dtype.name}: {line.name}")
        record: dict[str, Any] = {"data": line.name, "allowed": limit if line.common else goal}
        for size in WIDTHS:
            watch, spent = Stopwatch(), 0.0
            contestants = {
                f"{kind}{name}": call
                for kind, both in (
                    ("", line.passes(dtype, rows, size, backend)),
                    ("normal ", normal[size]),
                )
                for name, call in zip(("forward", "backward"), both, strict=True)
            }
            while watch.rounds < LEAST_ROUNDS or (
                watch.rounds < MOST_ROUNDS and spent < SECONDS_PER_LINE
            ):
                spent += watch.go_round(contestants)
            for name in ("forward", "backward"):
                record[f"{name} {size}"] = watch.ratio(name, f"normal {name}")
        record["worst"] = max(record[column] for column in COLUMNS)
        records.append(record)
    status_line()
    return sorted(records, key=lambda record: -record["worst"])


def cost_of_hard_cases(dtype: np.dtype[Any], backend: str) -> Iterator[dict[str, Any]]:
    """Yield, for each output, the cost of its hard cases relative to normal data."""
    for output in OUTPUTS:
        status_line(f"{dtype.name}: hard cases of {output}")
        which = 0 if output == "y" else 1
        hard, spent, normal = 0, 0.0, 0.0
        for case in hard_cases(output, dtype, HARD_ELEMENTS):
            rows, size = case.x.shape
            x = make_x("normal", dtype, rows, size, 0)
            gamma, beta = (
                None if each is None else make_parameter("random", each.dtype, size, seed)
                for seed, each in enumerate((case.gamma, case.beta))
            )
            easy = Case("normal", x, gamma, beta, make_dy("random", x, 0), 1e-5)
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


def measure(name: str, backend: str) -> dict[str, Any]:
    """Measure one type; ratios are relative to the nanoseconds an element of normal data."""
    dtype, rows, watch = np.dtype(name), TERMS[backend].rows, Stopwatch()
    forward, backward = Data("normal").passes(dtype, rows, WIDTHS[0], backend)
    for _ in range(MOST_ROUNDS):
        watch.go_round({"forward": forward, "backward": backward})
    elements = rows * WIDTHS[0]
    return {
        "backend": backend,
        "rows": rows,
        "normal_ns_per_element": {k: watch.p50(k) / elements * 1e9 for k in watch.seconds},
        "families": cost_of_lines(dtype, backend),
        "hard_cases": list(cost_of_hard_cases(dtype, backend)),
    }


def report_of(name: str, measured: dict[str, Any]) -> str:
    """Return the tables of one type."""
    normal = measured["normal_ns_per_element"]
    families = [
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
    return (
        f"{name}, {measured['backend']}, {measured['rows']} rows; normal data (1.00) at "
        f"D = {WIDTHS[0]}: forward {normal['forward']:.3g}, backward {normal['backward']:.3g} "
        "ns/element\n"
        + table(["relative to normal data", *COLUMNS, "allowed", ""], families)
        + "\n\n"
        + table(["constructed, no limit", "hard elements", "ratio", "extra us each"], hard)
        + "\n"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = options("family_cost", "Time difficult rows relative to normal ones.")
    parser.add_argument("--dtype", action="append", help="default: float32 and float64")
    parser.add_argument("--backend", choices=list(TERMS), default="reference")
    arguments = parser.parse_args(argv)
    report: dict[str, Any] = {"machine": machine()}
    if not arguments.json:
        print(heading(report["machine"]), end="\n\n")
    for name in arguments.dtype or ["float32", "float64"]:
        report[name] = measure(name, arguments.backend)
        if not arguments.json:
            print(report_of(name, report[name]), flush=True)
    if arguments.json:
        print(strict_json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
