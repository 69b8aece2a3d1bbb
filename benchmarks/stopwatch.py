"""A stopwatch for contestants that take turns."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

Contestants = Mapping[str, Callable[[], object]]


def seconds_of(work: Callable[[], object], calls: int = 1) -> float:
    """Return the time of a number of calls, in seconds."""
    times = range(calls)
    start = time.perf_counter()
    for _ in times:
        work()
    return time.perf_counter() - start


@dataclass
class Stopwatch:
    """Times of contestants that take turns. Compare only times of the same stopwatch.

    Attributes
    ----------
    seconds : dict of str to list of float
        The time of a call in each round, by contestant.
    rounds : int
        The number of rounds.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    def go_round(self, contestants: Contestants, calls: Mapping[str, int] | int = 1) -> float:
        """Time each contestant once, starting with another one each round; return the total time.

        If `calls` is above 1, a time is the mean of that many calls, for work too short for the
        clock. An untimed call precedes them, since the caches hold data of the contestant before.
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
        """Add a time that was measured elsewhere."""
        self.seconds.setdefault(name, []).append(taken)

    def p50(self, name: str) -> float:
        """Return the median, in seconds."""
        return statistics.median(self.seconds[name])

    def p99(self, name: str) -> float:
        """Return the 99th percentile; the longest time if there are fewer than 100 rounds."""
        taken = sorted(self.seconds[name])
        return taken[-(-99 * len(taken) // 100) - 1]

    def mean(self, name: str) -> float:
        """Return the mean, in seconds."""
        return statistics.fmean(self.seconds[name])

    def ratio(self, name: str, to: str) -> float:
        """Return the ratio of two medians."""
        return self.p50(name) / self.p50(to)
