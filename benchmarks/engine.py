"""``python -m benchmarks.engine``: how near the kernels are to the bare machine."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

import truenorm as tn
from benchmarks.against_bare import MEGABYTES, Line, measure, settings
from benchmarks.bare import Bare
from benchmarks.timing import asking_for, heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.text import table

SEEDS = 20
SECTIONS = ("large", "types", "small", "long", "families")
FAMILY_TYPES = ("float32", "float64")


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.engine",
        description="Time the kernels beside a bare copy and a bare triad.",
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--threads", type=int, default=usable_cores())
    described.add_argument("--seeds", type=int, default=SEEDS, help="each is new data")
    described.add_argument("--only", choices=SECTIONS, nargs="+", default=SECTIONS)
    described.add_argument(
        "--megabytes", type=float, default=MEGABYTES,
        help="size of an array of the sections large and types; the goals are about 64 and more",
    )  # fmt: skip
    return described.parse_args(argv)


def report_of(lines: list[Line]) -> str:
    """Return the table of one setting."""
    first = lines[0]
    return f"{first.dtype} {first.shape}\n" + table(
        ["", "p50 ms", "mean ms", "p99 ms", "GB/s", "beside", "x p50", "x mean", "goal", ""],
        [
            [
                line.contestant,
                f"{line.p50_ms:.4g}",
                f"{line.mean_ms:.4g}",
                f"{line.p99_ms:.4g}",
                f"{line.gigabytes_per_second:.1f}",
                line.bare or "",
                *(
                    "" if ratio is None else f"{ratio:.2f}"
                    for ratio in (line.ratio_of_medians, line.ratio_of_means, line.goal)
                ),
                "missed" if line.missed else "",
            ]
            for line in lines
        ],
    )


def families(backend: str) -> dict[str, Any]:
    """Measure what difficult rows cost, with one thread, by the other command."""
    from benchmarks import family_cost  # which needs the group "tests"

    os.environ.update(asking_for(threads=1))
    return {name: family_cost.measure(name, backend) for name in FAMILY_TYPES}


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    arguments = arguments_of(argv)
    # A variable of the caller's would override the argument.
    os.environ.update(asking_for(arguments.threads))
    backend = next(status.name for status in tn.backends() if status.usable)
    where = machine(arguments.threads) | {"backend": backend}
    bare = Bare(arguments.threads)
    lines: list[Line] = []
    if not arguments.json:
        print(heading(where), f"seeds    {arguments.seeds}", sep="\n", flush=True)
    for setting in settings(arguments.only, arguments.megabytes):
        measured = measure(setting, bare, arguments.threads, arguments.seeds)
        lines += measured
        if not arguments.json:
            print("", report_of(measured), sep="\n", flush=True)
    difficult = families(backend) if "families" in arguments.only else {}
    if arguments.json:
        report = {
            "machine": where,
            "seeds": arguments.seeds,
            "lines": [asdict(line) for line in lines],
            "families": difficult,
        }
        print(strict_json.dumps(report))
    elif difficult:
        from benchmarks import family_cost

        for name, found in difficult.items():
            print("", family_cost.report_of(name, found), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
