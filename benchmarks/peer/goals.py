"""What truenorm wants to reach beside its peers, and whether it does."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Figure", "Verdict", "verdicts"]

MEGABYTE = 10**6
LARGE = 32 * MEGABYTE
FORMS = (", out=", "")


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


@dataclass(frozen=True)
class Verdict:
    """A goal at one shape in one direction: reached if the ratio of medians is below `allowed`.

    The ratio of the fastest calls is there to be compared: where it differs much, the machine was
    busy.
    """

    goal: str
    shape: tuple[int, ...]
    direction: str
    contestant: str
    rival: str
    ratio: float
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
    size = group[0].megabytes * MEGABYTE
    everyone = {figure.peer for figure in group} - {"truenorm"}
    if size >= MEGABYTE:
        yield from _compare(group, "fast", everyone, 1.0, "ahead of the best peer")
    elif group[0].shape == (1, 1, 1024):
        yield from _compare(group, "fast", {"torch"}, 2.0, "within 2x of PyTorch")
    if size >= LARGE:
        yield from _compare(group, "correct", {"torch"}, 1.0, "ahead of PyTorch")
        yield from _compare(group, "correct", {"jax"}, 1.0, "ahead of JAX")
    else:
        yield from _compare(group, "correct", {"torch"}, 2.0, "within 2x of PyTorch")


def _compare(
    group: list[Figure], mode: str, rivals: set[str], allowed: float, goal: str
) -> Iterator[Verdict]:
    """Hold a mode against the fastest of its rivals, with ``out=`` and without.

    With ``out=`` the rivals are all of them, allocating or not; without it, those that allocate
    their result too.
    """
    by_name = {figure.contestant: figure for figure in group}
    for form in FORMS:
        ours = by_name.get(f"truenorm {mode}{form}")
        theirs = [
            figure
            for figure in group
            if figure.peer in rivals
            and ours is not None
            and (form or figure.writes_to == ours.writes_to)
        ]
        if ours is None or not theirs:
            continue
        best = min(theirs, key=lambda figure: figure.p50)
        ratio = ours.p50 / best.p50
        yield Verdict(
            f"{mode} {goal}",
            ours.shape,
            ours.direction,
            ours.contestant,
            best.contestant,
            ratio,
            ours.min / best.min,
            allowed,
            ratio < allowed,
        )
