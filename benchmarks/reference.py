"""``python -m benchmarks.reference``: what the reference backend costs beside the textbook."""
# ruff: noqa: T201
# A command prints its result.

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from benchmarks.timing import asking_for, heading, machine
from truenorm.tools import strict_json
from truenorm.tools.machine import Stopwatch
from truenorm.tools.text import table

os.environ.update(asking_for(threads=1))
# Only now, since NumPy's libraries look once.
# isort: split
import numpy as np

import truenorm as tn
from truenorm import textbook
from truenorm.textbook import FloatArray

SEEDS = 20
PASSES = ("forward", "backward")
TEXTBOOK, CAST, FAST, CORRECT = (
    "textbook",
    "textbook in float64, then cast",
    "truenorm fast",
    "truenorm correct",
)
FRESH_PROCESSES = 10


@dataclass(frozen=True)
class Inputs:
    """The arguments of one forward and one backward pass."""

    x: FloatArray
    gamma: FloatArray
    beta: FloatArray
    dy: FloatArray

    @classmethod
    def normal(cls, shape: tuple[int, ...], dtype: type[np.floating], seed: int) -> "Inputs":
        """Draw normal data."""
        random = np.random.default_rng(seed)
        x, dy = random.standard_normal((2, *shape)).astype(dtype)
        gamma, beta = random.standard_normal((2, shape[-1])).astype(dtype)
        return cls(x, gamma, beta, dy)


Pass = Callable[[], object]


def textbook_passes(given: Inputs) -> tuple[Pass, Pass]:
    """Return forward and backward of the textbook form in the type of x."""
    _, saved = textbook.forward(given.x, given.gamma, given.beta)
    return (
        lambda: textbook.forward(given.x, given.gamma, given.beta),
        lambda: textbook.backward(given.dy, saved),
    )


def cast_passes(given: Inputs) -> tuple[Pass, Pass]:
    """Return the same in float64, with results in the type of x. Widening is part of the cost."""

    def wide(array: FloatArray) -> FloatArray:
        return array.astype(np.float64)

    def forward() -> tuple[FloatArray, textbook.Saved]:
        y, saved = textbook.forward(wide(given.x), wide(given.gamma), wide(given.beta))
        return y.astype(given.x.dtype), saved

    _, saved = forward()

    def backward() -> list[FloatArray]:
        gradients = textbook.backward(wide(given.dy), saved)
        return [gradient.astype(given.x.dtype) for gradient in gradients]

    return forward, backward


def truenorm_passes(given: Inputs, rounding: str) -> tuple[Pass, Pass]:
    """Return forward and backward of truenorm's reference backend."""

    def forward() -> tuple[FloatArray, tn.Saved]:
        return tn.layer_norm_forward(
            given.x, given.gamma, given.beta, rounding=rounding, backend="reference"
        )

    _, saved = forward()
    return forward, lambda: tn.layer_norm_backward(given.dy, saved, backend="reference")


IMPLEMENTATIONS: dict[str, Callable[[Inputs], tuple[Pass, Pass]]] = {
    TEXTBOOK: textbook_passes,
    CAST: cast_passes,
    FAST: lambda given: truenorm_passes(given, "fast"),
    CORRECT: lambda given: truenorm_passes(given, "correct"),
}


@dataclass(frozen=True)
class Cost:
    """One line of the table."""

    dtype: str
    shape: tuple[int, ...]
    direction: str
    implementation: str
    p50_ms: float
    mean_ms: float
    p99_ms: float
    ns_per_element: float
    ratio_to_textbook: float
    ratio_of_means: float


def compare(
    shape: tuple[int, ...],
    dtype: type[np.floating],
    names: list[str],
    seeds: int,
    calls: int = 1,
) -> Iterator[Cost]:
    """Let the implementations take turns, on new data each round, so many calls at a time."""
    watch = Stopwatch()
    for seed in range(seeds):
        given = Inputs.normal(shape, dtype, seed)
        # Making the passes runs each forward once, which warms it up.
        passes = {name: IMPLEMENTATIONS[name](given) for name in names}
        watch.go_round(
            {
                f"{direction} {name}": passes[name][k]
                for k, direction in enumerate(PASSES)
                for name in names
            },
            calls,
        )
    for direction in PASSES:
        for name in names:
            key = f"{direction} {name}"
            yield Cost(
                np.dtype(dtype).name,
                shape,
                direction,
                name,
                watch.p50(key) * 1e3,
                watch.mean(key) * 1e3,
                watch.p99(key) * 1e3,
                watch.p50(key) / np.prod(shape) * 1e9,
                watch.ratio(key, f"{direction} {TEXTBOOK}"),
                watch.mean(key) / watch.mean(f"{direction} {TEXTBOOK}"),
            )


def import_times(processes: int) -> dict[str, float]:
    """Return the medians, in ms, of imports in fresh processes, the interpreter's start apart."""
    watch = Stopwatch()
    for _ in range(processes):
        for module in ("numpy", "truenorm"):
            program = (
                "import time; start = time.perf_counter(); "
                f"import {module}; print(time.perf_counter() - start)"
            )
            ran = subprocess.run(
                [sys.executable, "-c", program], capture_output=True, text=True, check=True
            )
            watch.add(module, float(ran.stdout))
    return {
        "numpy_ms": watch.p50("numpy") * 1e3,
        "truenorm_ms": watch.p50("truenorm") * 1e3,
        "ratio": watch.ratio("truenorm", "numpy"),
    }


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    described = argparse.ArgumentParser(
        prog="python -m benchmarks.reference", description="Time the reference backend."
    )
    described.add_argument("--json", action="store_true", help="print one JSON object")
    described.add_argument("--seeds", type=int, default=SEEDS, help="rounds, each on new data")
    arguments = described.parse_args(argv)
    everyone, seeds = list(IMPLEMENTATIONS), arguments.seeds
    tables = [
        # Of one row the cost is that of a call: several in a row, as a program makes them.
        list(compare((1, 1, 1024), np.float32, everyone, seeds, calls=20)),
        list(compare((4, 512, 1024), np.float32, everyone, seeds)),
        list(compare((1, 128, 1024), np.float64, [TEXTBOOK, CORRECT], seeds)),
    ]
    imports = import_times(FRESH_PROCESSES)
    where = machine()
    if arguments.json:
        report = {
            "machine": where,
            "rounds": seeds,
            "costs": [asdict(cost) for costs in tables for cost in costs],
            "import": imports,
        }
        print(strict_json.dumps(report))
        return 0
    print(heading(where))
    for costs in tables:
        print(f"\n{costs[0].dtype} {costs[0].shape}, normal data, {seeds} rounds")
        print(
            table(
                ["", "p50 ms", "mean ms", "p99 ms", "ns/element", "x textbook", "of means"],
                [
                    [
                        f"{cost.direction:9s}{cost.implementation}",
                        f"{cost.p50_ms:.3f}",
                        f"{cost.mean_ms:.3f}",
                        f"{cost.p99_ms:.3f}",
                        f"{cost.ns_per_element:.1f}",
                        f"{cost.ratio_to_textbook:.2f}",
                        f"{cost.ratio_of_means:.2f}",
                    ]
                    for cost in costs
                ],
            )
        )
    print(f"\nimport, median of {FRESH_PROCESSES} fresh processes each")
    print(
        f"numpy {imports['numpy_ms']:.1f} ms, truenorm (which loads numpy when it is first used) "
        f"{imports['truenorm_ms']:.1f} ms: {imports['ratio']:.2f}x"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
