"""Time contestants that take turns, so that whatever slows the machine slows them all."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Contestants", "Stopwatch", "seconds_of"]

Contestants = Mapping[str, Callable[[], object]]


def seconds_of(work: Callable[[], object], calls: int = 1) -> float:
    """Return how long so many calls take, in seconds."""
    times = range(calls)
    start = time.perf_counter()
    for _ in times:
        work()
    return time.perf_counter() - start


@dataclass
class Stopwatch:
    """Times of contestants that take turns; only ratios between those of one stopwatch count.

    Attributes
    ----------
    seconds : dict of str to list of float
        What a call took in each round, by contestant.
    rounds : int
        How many there were.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    def go_round(self, contestants: Contestants, calls: Mapping[str, int] | int = 1) -> float:
        """Time each contestant once, beginning with another one each round; return the sum.

        Of something too short for the clock, a time is the mean of so many calls in a row. One
        before them is not timed: it finds the caches as the contestant before has left them.
        """
        names = list(contestants)
        first = self.rounds % len(names)
        self.rounds += 1
        total = 0.0
        for name in names[first:] + names[:first]:
            count = calls if isinstance(calls, int) else calls[name]
            if count > 1:
                contestants[name]()
            taken = seconds_of(contestants[name], count)
            self.add(name, taken / count)
            total += taken
        return total

    def add(self, name: str, taken: float) -> None:
        """Note a time that was measured elsewhere."""
        self.seconds.setdefault(name, []).append(taken)

    def p50(self, name: str) -> float:
        """Return the median, in seconds."""
        return statistics.median(self.seconds[name])

    def p99(self, name: str) -> float:
        """Return the time that 99 of 100 rounds stay below; of fewer rounds, the longest."""
        taken = sorted(self.seconds[name])
        return taken[-(-99 * len(taken) // 100) - 1]

    def mean(self, name: str) -> float:
        """Return the mean, in seconds."""
        return statistics.fmean(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return the quotient of two medians."""
        return self.p50(name) / self.p50(to)
