"""What was measured, and what follows from it."""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from truenorm.bench.contestants import DIRECTIONS, FLOORS

__all__ = ["ARRAYS", "FLOPS", "Figure", "Report", "Timing", "figures_of", "label"]

ARRAYS = {"forward": 2, "backward": 3}
"""Arrays of the size of x that must move: x and y; x, dy and dx."""
FLOPS = {
    "layer_norm": {"forward": 7, "backward": 11},
    "rms_norm": {"forward": 4, "backward": 8},
}
"""Operations for each element in the textbook formula: docs/time-and-memory.md counts them."""


class Timing(NamedTuple):
    """What a call took, in seconds: the first one, and the median of the turns."""

    first: float
    median: float
    calls: int  # in a turn


@dataclass(frozen=True)
class Figure:
    """One contestant at one shape, in one direction."""

    shape: tuple[int, ...]
    direction: str  # forward or backward
    contestant: str
    seconds: float  # of a call: the median over the rounds
    first_call: float  # its seconds: modules are imported in it
    calls: int  # made in a turn, whose time is their mean
    bytes_per_second: float  # of ARRAYS, and no others
    flops_per_second: float  # of FLOPS, whoever computes in whatever way; 0 for the bare machine
    times_floor: float  # seconds, divided by those of the copy (forward) or the triad (backward)


@dataclass(frozen=True)
class Report:
    """All figures of a run, and where it ran."""

    operation: str  # layer_norm or rms_norm
    machine: dict[str, str]  # date, processor, cores, load and versions
    backend: str  # of truenorm
    threads: int  # that truenorm could use
    dtype: str
    rounds: int
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()  # what else has to be said beside the figures

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes, in order."""
        return list(dict.fromkeys(figure.shape for figure in self.figures))

    def of(self, shape: tuple[int, ...]) -> dict[str, dict[str, Figure]]:
        """Return the figures of a shape by direction and contestant."""
        found: dict[str, dict[str, Figure]] = {direction: {} for direction in DIRECTIONS}
        for figure in self.figures:
            if figure.shape == shape:
                found[figure.direction][figure.contestant] = figure
        return found

    def first_calls(self) -> dict[str, float]:
        """Return how many seconds truenorm's first calls took beyond the later ones."""
        lost: dict[str, float] = {}
        for figure in self.figures:
            if figure.contestant.startswith("truenorm"):
                name = f"{figure.contestant.removeprefix('truenorm ')} {figure.direction}"
                extra = max(0.0, figure.first_call - figure.seconds)
                lost[name] = lost.get(name, 0.0) + extra
        return lost

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        counted = {"arrays_moved": ARRAYS, "flops_per_element": FLOPS[self.operation]}
        return {**vars(self), **counted, "first_calls": self.first_calls()}


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as the command takes it: 2x128x1024."""
    return "x".join(map(str, shape))


def figures_of(
    operation: str,
    shape: tuple[int, ...],
    itemsize: int,
    direction: str,
    timings: dict[str, Timing],
) -> list[Figure]:
    """Return what follows from the times of one shape and direction."""
    moved, flops = (prod(shape) * each[direction] for each in (ARRAYS, FLOPS[operation]))
    floor = FLOORS[direction]
    return [
        Figure(
            shape,
            direction,
            name,
            timing.median,
            timing.first,
            timing.calls,
            moved * itemsize / timing.median,
            0.0 if name == floor else flops / timing.median,
            timing.median / timings[floor].median,
        )
        for name, timing in timings.items()
    ]
