"""Facts about the machine and the installation, and a stopwatch."""

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
    """Return facts about the machine by name, in the given order.

    Parameters
    ----------
    *names : str
        Keys of `FACTS`; any other name is that of a package, whose version is returned.

    Returns
    -------
    dict of str to str
        Facts that the system does not provide are missing.

    Examples
    --------
    >>> list(describe("date", "cpu", "numpy"))
    ['date', 'cpu', 'numpy']
    """
    facts = {name: FACTS[name]() if name in FACTS else package_version(name) for name in names}
    return {name: text for name, text in facts.items() if text}


def today() -> str:
    """Return the date in UTC: 2026-12-31."""
    return datetime.now(UTC).date().isoformat()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def package_version(package: str) -> str:
    """Return the version of a package, or 'not installed'."""
    if package == "truenorm":  # a checkout may differ from the installed version
        return str(import_module(package).__version__)
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    """Return the name of the processor from Linux, or from Python on other systems."""
    try:
        lines = CPUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cores() -> str:
    total, usable = os.cpu_count() or 1, usable_cores()
    return str(total) if usable == total else f"{usable} of {total}"


def _load() -> str:
    """Return the load average of the last minute, or nothing if the system has none."""
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
"""Functions that return a fact about the machine, by name."""

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
