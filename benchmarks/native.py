"""``python -m benchmarks.native``: the native backend beside a copy and a triad, and over seeds.

Prints, for float32: times of large calls with ``out=`` divided by those of a copy (forward) or a
triad (backward); times of RMSNorm divided by those of layer norm; and the slowest of 64 seeds at
(2, 128, 1024) divided by the median seed, each seed by the median of several calls. Of partials:
the time of a backward pass that returns one, divided by that of plain backward; and the time to
merge two of 1024 columns, in microseconds.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn
from benchmarks.bare import Bare
from benchmarks.timing import heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import usable_cores
from truenorm.tools.progress import status_line
from truenorm.tools.text import table

__all__ = ["main"]

Array = NDArray[Any]
LARGE = ((4, 512, 4096), (8, 1024, 4096), (8, 4096, 1024))
LONG = ((1, 8, 262144), (1, 1, 4194304))
MIDDLE = ((2, 128, 64), (2, 128, 1024), (4, 512, 1024))
MODES = ("fast", "correct")
PARTIALS = ((256, 1024), (256, 4096), (2048, 1024), (2048, 4096))
SEEDS, CALLS = 64, 21


def inputs(shape: tuple[int, ...], seed: int) -> tuple[Array, Array, Array, Array]:
    """Return x, dy, gamma and beta."""
    rng = np.random.default_rng(seed)
    x, dy = (rng.standard_normal(shape, np.float32) for _ in range(2))
    gamma, beta = (rng.standard_normal(shape[-1], np.float32) for _ in range(2))
    return x, dy, gamma, beta


def passes(shape: tuple[int, ...], norm: str, seed: int = 0) -> dict[str, Callable[[], object]]:
    """Return both passes in both modes, each on arrays that exist."""
    x, dy, gamma, beta = inputs(shape, seed)
    out = np.empty_like(x)
    found: dict[str, Callable[[], object]] = {}
    for mode in MODES:
        how: dict[str, Any] = {"rounding": mode, "backend": "native"}

        def forward(how: dict[str, Any] = how) -> tuple[Array, tn.Saved]:
            if norm == "layer_norm":
                return tn.layer_norm_forward(x, gamma, beta, out=out, **how)
            return tn.rms_norm_forward(x, gamma, out=out, **how)

        saved = forward()[1]
        back = tn.layer_norm_backward if norm == "layer_norm" else tn.rms_norm_backward

        def backward(saved: tn.Saved = saved, back: Any = back) -> object:
            return back(dy, saved, out=out, backend="native")

        found[f"{norm} forward {mode}"], found[f"{norm} backward {mode}"] = forward, backward
    if norm == "layer_norm":
        found |= Bare(usable_cores()).contestants(x, dy, out)
    return found


def medians(contestants: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Return the median time of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[next(iter(times))]) < 5:
        for name, call in contestants.items():
            call()
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: median(found) for name, found in times.items()}


def beside_bare(seconds: float) -> list[list[str]]:
    """Return rows: times of large calls divided by those of a copy or a triad."""
    rows = []
    for shape in LARGE + LONG:
        status_line(f"{shape} beside copy and triad")
        found = medians(passes(shape, "layer_norm"), seconds)
        ratios = [
            found[f"layer_norm {direction} {mode}"] / found[bare]
            for mode in MODES
            for direction, bare in (("forward", "copy"), ("backward", "triad"))
        ]
        rows.append(["x".join(map(str, shape)), *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def rms_norm_beside_layer_norm(seconds: float) -> list[list[str]]:
    """Return rows: times of RMSNorm divided by those of layer norm."""
    rows = []
    for shape in MIDDLE + LARGE[:1]:
        status_line(f"{shape}, RMSNorm")
        found = medians(passes(shape, "layer_norm") | passes(shape, "rms_norm"), seconds)
        ratios = [
            found[f"rms_norm {direction} {mode}"] / found[f"layer_norm {direction} {mode}"]
            for mode in MODES
            for direction in ("forward", "backward")
        ]
        rows.append(["x".join(map(str, shape)), *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def partials_beside_backward(seconds: float) -> list[list[str]]:
    """Return rows: times of backward with a partial divided by those of plain backward."""
    rows = []
    for shape in PARTIALS:
        status_line(f"{shape}, partials")
        x, dy, gamma, beta = inputs(shape, 0)
        out = np.empty_like(x)
        row = ["x".join(map(str, shape))]
        for norm in ("layer_norm", "rms_norm"):
            parameters = (gamma, beta) if norm == "layer_norm" else (gamma,)
            _, saved = getattr(tn, f"{norm}_forward")(x, *parameters, backend="native")
            contestants: dict[str, Callable[[], object]] = {
                name: partial(getattr(tn, f"{norm}_{name}"), dy, saved, out=out)
                for name in ("backward", "backward_partial")
            }
            found = medians(contestants, seconds)
            row.append(f"{found['backward_partial'] / found['backward']:.2f}")
        rows.append(row)
    return rows


def merge_microseconds() -> str:
    """Return the median time to add two partials of 1024 columns."""
    x, dy, gamma, beta = inputs((256, 1024), 0)
    _, saved = tn.layer_norm_forward(x, gamma, beta, backend="native")
    _, one = tn.layer_norm_backward_partial(dy, saved)
    _, other = tn.layer_norm_backward_partial(-dy[::-1].copy(), saved)
    return f"{1e6 * medians({'merge': lambda: one + other}, 1.0)['merge']:.1f}"


def over_seeds() -> list[list[str]]:
    """Return a row: the slowest of the seeds divided by the median of them; seeds take turns."""
    seeds = [passes((2, 128, 1024), "layer_norm", seed) for seed in range(SEEDS)]
    times: dict[str, list[float]] = {}
    for name in seeds[0]:
        status_line(f"seeds, {name}")
        found: list[list[float]] = [[] for _ in seeds]
        for _ in range(CALLS):
            for contestants, of_seed in zip(seeds, found, strict=True):
                contestants[name]()
                start = time.perf_counter()
                contestants[name]()
                of_seed.append(time.perf_counter() - start)
        times[name] = [median(of_seed) for of_seed in found]
    ratios = [
        max(found) / median(found)
        for mode in MODES
        for direction in ("forward", "backward")
        for found in [times[f"layer_norm {direction} {mode}"]]
    ]
    return [["slowest of 64 seeds", *(f"{ratio:.2f}" for ratio in ratios)]]


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(prog="python -m benchmarks.native", description=__doc__)
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--seconds", type=float, default=4.0, help="of each contest")
    arguments = described.parse_args(argv)
    columns = [f"{mode} {direction}" for mode in MODES for direction in ("forward", "backward")]
    parts = {
        "times copy, triad": beside_bare(arguments.seconds),
        "RMSNorm, times layer norm": rms_norm_beside_layer_norm(arguments.seconds),
        "(2, 128, 1024), times the median seed": over_seeds(),
    }
    of_partials = partials_beside_backward(arguments.seconds)
    merge = merge_microseconds()
    status_line()
    where = machine(usable_cores())
    if arguments.json:
        told = {"columns": columns, **parts, "partials": of_partials, "merge": merge}
        print(strict_json.dumps({"machine": where, **told}))
        return 0
    tables = [table([title, *columns], rows) for title, rows in parts.items()]
    tables.append(table(["partials, times backward", "layer norm", "RMSNorm"], of_partials))
    tables.append(f"merge of two partials of 1024 columns: {merge} us")
    print(heading(where), *tables, sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
