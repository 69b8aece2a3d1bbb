"""Where and with what something ran, and when: no figure means anything without it."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CPUS = Path("/proc/cpuinfo")


def describe(*names: str) -> dict[str, str]:
    """Return facts by name, in the order in which they are asked for.

    Parameters
    ----------
    *names : str
        Of `FACTS`; any other is the name of a package, whose version is given.

    Returns
    -------
    dict of str to str
        Without what the system does not tell.

    Examples
    --------
    >>> list(describe("date", "cpu", "numpy"))
    ['date', 'cpu', 'numpy']
    """
    found = {name: FACTS[name]() if name in FACTS else package_version(name) for name in names}
    return {name: text for name, text in found.items() if text}


def today() -> str:
    """Return the date in UTC: 2026-12-31."""
    return datetime.now(UTC).date().isoformat()


def usable_cores() -> int:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(package: str) -> str:
    """Return the version of a package, or that there is none."""
    if package == "truenorm":  # a checkout may have a version that is not the one installed
        return str(import_module(package).__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    """Return the name that Linux gives the processor, elsewhere what Python knows of it."""
    try:
        lines = CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> str:
    there, usable = os.cpu_count() or 1, usable_cores()
    return str(there) if usable == there else f"{usable} of {there}"


def _load() -> str:
    """Return how many threads wanted a core in the last minute, where the system tells."""
    try:
        return f"{os.getloadavg()[0]:.1f} before the run"
    except (AttributeError, OSError):
        return ""


FACTS: dict[str, Callable[[], str]] = {
    "date": today,
    "cpu": _cpu_model,
    "cores": _cores,
    "load": _load,
    "machine": lambda: f"{platform.system()} {platform.machine()}",
    "system": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
    "platform": platform.platform,
    "python": platform.python_version,
}
"""What is known about where a process runs."""


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
