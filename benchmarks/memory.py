"""``python -m benchmarks.memory``: what a call allocates beyond its arguments and its result.

Each case runs in a fresh process, since the peak of resident memory never falls. Linux only.
"""

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import truenorm as tn
from benchmarks.common import heading, machine, markdown_table, options, thread_variables
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line

MEGABYTES, WIDTHS, FEW_ROWS = 256, (1024, 4096, 65536), 64
SHARE, BYTES_PER_THREAD = 0.02, 4 * 2**20
"""The limit: a share of x, plus bytes for each thread."""


def resident(name: str) -> int:
    """Return VmRSS, the resident memory, or VmHWM, its peak, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def reset() -> None:
    """Return freed memory to the system, or a call could reuse it unseen; reset the peak."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # not every libc has it
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")


def peak_of(direction: str, rounding: str, width: int, megabytes: float) -> dict[str, float]:
    """Return, in bytes, what a call with ``out=`` takes in this process."""
    small = np.random.default_rng(0).standard_normal((4096, 64), dtype=np.float32)
    small[0], small[1] = 0.1, small[1] + 1e7  # rows that need a fallback
    ones = np.ones(64, np.float32)
    tn.layer_norm_backward(small, tn.layer_norm_forward(small, ones, ones, rounding=rounding)[1])
    rows = max(FEW_ROWS, int(megabytes * 2**20 / 4 / width))
    x, dy, out = (np.zeros((rows, width), np.float32) for _ in range(3))
    gamma, beta = np.zeros((2, width), np.float32)
    random = np.random.default_rng(1)
    for array in (x, dy, gamma, beta):
        random.standard_normal(dtype=np.float32, out=array)
    out.fill(1.0)  # pages of zeros would not be resident

    def call(count: int) -> Any:
        forward = partial(
            tn.layer_norm_forward, x[:count], gamma, beta, rounding=rounding, out=out[:count]
        )
        if direction == "forward":
            return lambda: forward()[1]
        return partial(tn.layer_norm_backward, dy[:count], forward()[1], out=out[:count])

    of_few_rows, of_all_rows = call(FEW_ROWS), call(rows)
    reset()
    before = resident("VmRSS")
    if resident("VmHWM") - before > 2**20:
        raise OSError("the peak was higher before the call than at its start: use larger arrays")
    of_few_rows()  # what the first use of a width allocates is shown separately
    first_use = resident("VmRSS") - before
    returned = of_all_rows()
    extra = resident("VmHWM") - before
    saved = returned.nbytes if isinstance(returned, tn.Saved) else 0
    return {"x": x.nbytes, "extra": extra, "first_use": first_use, "saved": saved}


def measure(case: tuple[str, str, int], megabytes: float, threads: int) -> dict[str, float]:
    """Measure one case in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", "--case", *map(str, case)]
    output = subprocess.check_output(
        [*command, "--megabytes", str(megabytes)], env=os.environ | thread_variables(threads)
    )
    peak: dict[str, float] = json.loads(output)
    return peak


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    parser = options("memory", "Measure the peak of resident memory during a call.")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="size of x")
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument(
        "--case", nargs=3, help="DIRECTION ROUNDING WIDTH: measure only this, here"
    )
    arguments = parser.parse_args(argv)
    if sys.platform != "linux":
        print("the peak of resident memory is read from Linux's /proc", file=sys.stderr)
        return 2
    if arguments.case:
        direction, rounding, width = arguments.case
        print(json.dumps(peak_of(direction, rounding, int(width), arguments.megabytes)))
        return 0
    rows = []
    for case in product(("forward", "backward"), ("fast", "correct"), arguments.widths):
        direction, rounding, width = case
        status_line(f"{rounding} {direction}, D = {width}")
        peak = measure(case, arguments.megabytes, arguments.threads)
        limit = SHARE * peak["x"] + BYTES_PER_THREAD * arguments.threads
        cells = [f"{size / 2**20:.2f}" for size in (*peak.values(), limit)]
        missed = "missed" if peak["extra"] > limit else ""
        rows.append([f"{rounding} {direction}", str(width), *cells, missed])
    status_line()
    backend = next(status.name for status in tn.backends() if status.usable)
    head = ["MiB", "D", "x", "extra", "first use", "Saved", "limit", ""]
    facts = heading(machine(arguments.threads) | {"backend": backend})
    print(facts, markdown_table(head, rows), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
