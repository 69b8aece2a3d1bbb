"""Time contestants that take turns, so that whatever slows the machine slows them all."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

__all__ = ["Timing", "take_turns"]

TURN = 0.005
"""Seconds that a turn lasts at least: the clock and the scheduler are coarser than short calls."""
MOST_CALLS = 1000

Contestants = Mapping[str, Callable[[], object]]


class Timing(NamedTuple):
    """What a call took, in seconds: the first one, and the median of the turns."""

    first: float
    median: float
    calls: int  # in a turn


def take_turns(
    contestants: Contestants, rounds: int, after_round: Callable[[], None]
) -> dict[str, Timing]:
    """Time every contestant once a round, beginning with another one each round.

    Short calls are made several times in a turn, whose time is their mean. One call before them is
    not timed: it finds the caches as the contestant before has left them.
    """
    names = list(contestants)
    first = {name: _seconds(contestants[name], 1) for name in names}
    calls = {name: _calls_in_a_turn(_seconds(contestants[name], 1)) for name in names}
    turns: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        start = number % len(names)
        for name in names[start:] + names[:start]:
            contestant, count = contestants[name], calls[name]
            if count > 1:
                contestant()
            turns[name].append(_seconds(contestant, count) / count)
        after_round()
    return {
        name: Timing(first[name], statistics.median(turns[name]), calls[name]) for name in names
    }


def _seconds(contestant: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        contestant()
    return time.perf_counter() - start


def _calls_in_a_turn(seconds: float) -> int:
    return MOST_CALLS if seconds <= 0 else min(MOST_CALLS, math.ceil(TURN / seconds))
