"""``python -m benchmarks.scale.cost``: backward with a partial beside plain backward."""
# ruff: noqa: T201
# A command prints its result.

from benchmarks.timing import heading, machine
from truenorm.tools.machine import Stopwatch
from truenorm.tools.text import table

# isort: split
import numpy as np

import truenorm as tn

SHAPES = ((2048, 4096), (8192, 1024), (1024, 8192), (256, 4096))
ROUNDS, MERGES = 15, 20


def line(norm: str, rows: int, size: int) -> list[str]:
    """Return what a shape costs, in times of plain backward and in ns a column."""
    x, dy = np.random.default_rng(0).standard_normal((2, rows, size)).astype(np.float32)
    dx, gamma = np.empty_like(x), np.ones(size, np.float32)
    parameters = (gamma, gamma) if norm == "layer_norm" else (gamma,)
    _, saved = getattr(tn, f"{norm}_forward")(x, *parameters)
    plain, partly = (getattr(tn, f"{norm}_backward{end}") for end in ("", "_partial"))
    partial = partly(dy, saved, out=dx)[1]
    watch = Stopwatch()
    contestants = {
        "plain": lambda: plain(dy, saved, out=dx),
        "partial": lambda: partly(dy, saved, out=dx),
    }
    short = {"merge": lambda: partial + partial, "round": partial.rounded}
    for _ in range(ROUNDS):
        watch.go_round(contestants)
        watch.go_round(short, MERGES)
    per_column = [f"{watch.p50(name) / size * 1e9:.0f}" for name in short]
    elements = f"{watch.p50('plain') / x.size * 1e9:.2f}"
    return [
        norm,
        f"{rows}x{size}",
        elements,
        f"{watch.ratio('partial', 'plain'):.2f}",
        *per_column,
    ]


def main() -> None:
    """Print the table."""
    lines = [line(norm, *shape) for norm in ("layer_norm", "rms_norm") for shape in SHAPES]
    columns = ["norm", "rows", "plain, ns", "with a partial", "merge, ns", "round, ns"]
    print(heading(machine(threads=2)))
    print(f"medians of {ROUNDS} rounds in turns; ns an element, times plain backward, ns a column")
    print()
    print(table(columns, lines))


if __name__ == "__main__":
    main()
