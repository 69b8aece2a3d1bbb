"""What truenorm wants to reach beside its peers, and whether it does."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Figure", "Verdict", "verdicts"]

MEGABYTE = 10**6
MIDDLE = 2 * 128 * 1024
"""Elements from which on fast mode is to be ahead of everyone."""
FORMS = (", out=", "")
TEXTBOOKS = {"textbook"}


@dataclass(frozen=True)
class Figure:
    """What one contestant took at one shape in one direction; times in seconds."""

    shape: tuple[int, ...]
    megabytes: float  # of x
    direction: str
    peer: str
    contestant: str
    writes_to: str
    p50: float
    mean: float
    min: float
    samples: int
    first_mean: float  # of the first 100 calls after the first one
    first_max: float


@dataclass(frozen=True)
class Verdict:
    """A goal at one shape in one direction: reached if neither ratio is above `allowed`.

    That is, of medians and of means. The ratio of the fastest calls is there to be compared:
    where it differs much, the machine was busy.
    """

    goal: str
    shape: tuple[int, ...]
    direction: str
    contestant: str
    rival: str
    ratio: float
    ratio_of_mean: float
    ratio_of_min: float
    allowed: float
    reached: bool


def verdicts(figures: Iterable[Figure]) -> Iterator[Verdict]:
    """Yield every goal that the figures suffice to judge."""
    groups: dict[tuple[tuple[int, ...], str], list[Figure]] = {}
    for figure in figures:
        groups.setdefault((figure.shape, figure.direction), []).append(figure)
    for group in groups.values():
        yield from _judge(group)


def _judge(group: list[Figure]) -> Iterator[Verdict]:
    """Judge the contestants of one shape and direction."""
    everyone = {figure.peer for figure in group} - {"truenorm"}
    if math.prod(group[0].shape) >= MIDDLE:
        yield from _compare(group, "fast", everyone, 1.0, "ahead of the best peer")
    else:
        yield from _compare(group, "fast", {"torch"}, 2.0, "within 2x of PyTorch")
    allowed = 2.0 if group[0].direction == "forward" else 3.0
    yield from _compare(group, "correct", {"torch"}, allowed, f"within {allowed:.0f}x of PyTorch")
    for mode in ("fast", "correct"):
        yield from _compare(group, mode, TEXTBOOKS, 1.0, "ahead of the textbook")


def _compare(
    group: list[Figure], mode: str, rivals: set[str], allowed: float, goal: str
) -> Iterator[Verdict]:
    """Hold a mode against the fastest of its rivals that put the result where it does.

    That is into an existing array, or into a new one.
    """
    by_name = {figure.contestant: figure for figure in group}
    for form in FORMS:
        ours = by_name.get(f"truenorm {mode}{form}")
        theirs = [
            figure
            for figure in group
            if figure.peer in rivals and ours is not None and figure.writes_to == ours.writes_to
        ]
        if ours is None or not theirs:
            continue
        best = min(theirs, key=lambda figure: figure.p50)
        ratio, of_means = ours.p50 / best.p50, ours.mean / best.mean
        yield Verdict(
            f"{mode} {goal}",
            ours.shape,
            ours.direction,
            ours.contestant,
            best.contestant,
            ratio,
            of_means,
            ours.min / best.min,
            allowed,
            max(ratio, of_means) <= allowed,
        )
