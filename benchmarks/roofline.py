"""``python -m benchmarks.roofline``: upper limits for the GPU kernels on four cards.

It measures nothing. It divides the operations of an element by the stated rates of the cards, and
fills the tables of docs/inside/gpu-kernels.md; ``python -m benchmarks.figures roofline`` draws
the same.
"""

import sys
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from benchmarks.common import DOCS, fill_page, markdown_table
from truenorm.exact import BFLOAT16, FLOAT32
from truenorm.kernels.gpu.plan import Plan

PAGE = DOCS / "inside" / "gpu-kernels.md"
SIZE = 4096
"""Elements of a row."""
SHARES = 2 * (8 + 8 + 4)
"""Bytes of a column's share of dgamma and dbeta with its bound: written, then read."""
TYPES = {"float32": FLOAT32, "16 bits": BFLOAT16}
PASSES, MODES = ("forward", "backward"), ("correct", "fast")


class Card(NamedTuple):
    """Stated rates of a card."""

    bandwidth: float
    """In TB."""
    float64: float
    """In 1e12 multiply-adds: half of what is stated in FLOPs."""
    cores: int
    """Float64 cores of a multiprocessor."""

    @property
    def rates(self) -> dict[str, float]:
        """Return rates in 1e12 a second; the clock follows from float64 and its cores."""
        return {"float64": self.float64, "instructions": self.float64 * ISSUED / self.cores}


ISSUED = 4 * 32
"""Instructions of threads that a multiprocessor issues at a time: four schedulers, 32 lanes."""
CARDS = {
    "A100": Card(2.039, 9.7 / 2, 32),
    "H100": Card(3.35, 34 / 2, 64),
    "B200": Card(7.7, 37.5 / 2, 64),
    "RTX 4090": Card(1.008, 1.29 / 2, 2),
}
"""80 GB and SXM where there are several; docs/inside/gpu-kernels.md names the sources."""


class Counts(NamedTuple):
    """Operations of an element."""

    float64: float
    conversions: float
    instructions: float


COUNTS = {
    ("correct", "forward", "float32"): Counts(12, 5, 29),
    ("correct", "forward", "16 bits"): Counts(12, 3, 80),
    ("correct", "backward", "float32"): Counts(27, 9, 70),
    ("correct", "backward", "16 bits"): Counts(27, 7, 121),
    ("fast", "forward", "float32"): Counts(3, 1, 17),
    ("fast", "forward", "16 bits"): Counts(3, 2, 42),
    ("fast", "backward", "float32"): Counts(10, 5, 36),
    ("fast", "backward", "16 bits"): Counts(10, 6, 63),
}
"""For layer norm, by ``benchmarks.gpu --instructions``; see docs/inside/gpu-kernels.md."""


def bytes_moved(direction: str, kind: str) -> tuple[float, float]:
    """Return the bytes an element that a pass moves, and the least that it can be."""
    width = 4 if kind == "float32" else 2
    if direction == "forward":
        return 2 * width, 2 * width
    plan = Plan.of("backward", SIZE, TYPES[kind], centred=True, correct=True)
    return 3 * width + SHARES / plan.run, 3 * width


def limits(card: Card, mode: str, direction: str, kind: str) -> dict[str, float]:
    """Return the time of each resource, in units of the time of the least traffic."""
    moved, least = bytes_moved(direction, kind)
    unit = least / card.bandwidth
    done = COUNTS[mode, direction, kind]._asdict()
    return {"memory": moved / least} | {
        name: done[name] / rate / unit for name, rate in card.rates.items()
    }


def cells(card: Card, mode: str) -> Iterator[str]:
    """Yield the largest limit of each pass and type, and its resource."""
    for direction, kind in product(PASSES, TYPES):
        times = limits(card, mode, direction, kind)
        worst = max(times, key=times.__getitem__)
        yield f"{times[worst]:.1f} {worst}"


def limits_table() -> str:
    """Return a line for each card and mode."""
    head = ["card", "mode", *map(", ".join, product(PASSES, TYPES))]
    rows = [[name, mode, *cells(card, mode)] for name, card in CARDS.items() for mode in MODES]
    return markdown_table(head, rows, numbers=False)


def counts_table() -> str:
    """Return the operations of an element in correct mode, with those of fast mode in brackets."""
    rows = [
        [f"{direction}, {kind}", *(f"{one} ({other})" for one, other in zip(*modes, strict=True))]
        for direction, kind in product(PASSES, TYPES)
        if (modes := [COUNTS[mode, direction, kind] for mode in MODES])
    ]
    return markdown_table(["pass", "float64 operations", "conversions", "instructions"], rows)


def cards_table() -> str:
    """Return the stated rates; a multiply-add is two FLOPs."""
    rows = [
        [name, f"{card.bandwidth:g}", f"{2 * card.float64:g}", f"{card.cores}"]
        for name, card in CARDS.items()
    ]
    head = ["bandwidth, TB/s", "float64, 10¹² FLOP/s", "float64 cores of a multiprocessor"]
    return markdown_table(["card", *head], rows)


def blocks() -> dict[str, str]:
    """Return the tables of the page by name."""
    return {"roofline": limits_table(), "operations": counts_table(), "cards": cards_table()}


def main() -> int:
    """Fill the tables."""
    fill_page(PAGE, blocks())
    return 0


if __name__ == "__main__":
    sys.exit(main())
