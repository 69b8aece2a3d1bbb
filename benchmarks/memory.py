"""``python -m benchmarks.memory``: what a call takes beyond its arguments and its result."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from typing import Any

import truenorm as tn
from benchmarks.timing import asking_for, heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

MEGABYTES = 256
WIDTHS = (1024, 4096, 65536)
# The limit: a share of x, and so much for each thread.
SHARE, BYTES_PER_THREAD = 0.02, 4 * 2**20


def measure(
    direction: str, rounding: str, width: int, megabytes: float, threads: int
) -> dict[str, Any]:
    """Measure one case in a fresh process, since a peak never falls."""
    command = [sys.executable, "-m", "benchmarks.peak"]
    ran = subprocess.run(
        [*command, direction, rounding, str(width), str(megabytes)],
        env=os.environ | asking_for(threads),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(ran.stdout)
    limit = SHARE * found["x"] + BYTES_PER_THREAD * threads
    return {
        "direction": direction,
        "rounding": rounding,
        "width": width,
        **found,
        "limit": limit,
        "missed": found["extra"] > limit,
    }


def report_of(records: list[dict[str, Any]]) -> str:
    """Return the table."""
    columns = ("x", "extra", "first_use", "saved", "limit")
    heads = ("x MiB", "extra MiB", "at first use", "of it Saved", "limit MiB")
    return table(
        ["", "D", *heads, ""],
        [
            [
                f"{record['rounding']} {record['direction']}",
                str(record["width"]),
                *(f"{record[column] / 2**20:.2f}" for column in columns),
                "missed" if record["missed"] else "",
            ]
            for record in records
        ],
    )


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description="Measure the peak of resident memory."
    )
    described.add_argument("--json", action="store_true", help="print one JSON object, in bytes")
    described.add_argument("--threads", type=int, default=usable_cores())
    described.add_argument("--megabytes", type=float, default=MEGABYTES, help="size of x")
    described.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    arguments = described.parse_args(argv)
    if sys.platform != "linux":
        print("the peak of resident memory is read from Linux's /proc", file=sys.stderr)
        return 2
    records = []
    for rounding, direction, width in product(
        ("fast", "correct"), ("forward", "backward"), arguments.widths
    ):
        status_line(f"{rounding} {direction}, D = {width}")
        records.append(measure(direction, rounding, width, arguments.megabytes, arguments.threads))
    status_line()
    backend = next(status.name for status in tn.backends() if status.usable)
    where = machine(arguments.threads) | {"backend": backend}
    if arguments.json:
        print(strict_json.dumps({"machine": where, "cases": records}))
        return 0
    print(heading(where), report_of(records), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
