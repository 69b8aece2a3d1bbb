"""What every benchmark shares: contestants taking turns, how many threads, and where it ran.

It needs the standard library alone, so that it can be imported before NumPy and without it.
"""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = [
    "Stopwatch",
    "asking_for",
    "heading",
    "machine",
    "progress",
    "save",
    "table",
    "usable_cores",
]

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TRUENORM_THREADS")
PACKAGES = ("numpy", "numba", "truenorm")

Contestants = Mapping[str, Callable[[], object]]


def asking_for(threads: int) -> dict[str, str]:
    """Return variables that ask truenorm and the libraries under NumPy for so many threads.

    Those libraries look once, when they are loaded: set them before NumPy is imported.
    """
    return dict.fromkeys(THREADS, str(threads))


def usable_cores() -> int:
    """Return how many cores this process may use, which may be fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class Stopwatch:
    """Times of contestants that take turns, so that whatever slows the machine slows them all.

    Only ratios between contestants of the same stopwatch mean anything.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    def go_round(self, contestants: Contestants, calls: int = 1) -> float:
        """Time each contestant once, beginning with another one each round; return the sum.

        Of something too short for the clock, a time is the mean of so many calls in a row.
        """
        names = list(contestants)
        first = self.rounds % len(names)
        self.rounds += 1
        total = 0.0
        for name in names[first:] + names[:first]:
            contestant, times = contestants[name], range(calls)
            start = time.perf_counter()
            for _ in times:
                contestant()
            taken = time.perf_counter() - start
            self.add(name, taken / calls)
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


def machine(threads: int = 1, packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Say where, with what and when: no figure means anything without it."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        **_versions(packages),
        "threads": str(threads),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of those that are installed here."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    """Return the name that Linux gives the processor, elsewhere what Python knows of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def heading(where: Mapping[str, str]) -> str:
    """Return the lines that stand above every table."""
    return "\n".join(f"{name:9s}{value}" for name, value in where.items())


def progress(text: str = "") -> None:
    """Overwrite a line on the screen, if there is one to look at; without text, clear it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table: the first column to the left, the others to the right."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *padded[1:]]).rstrip()

    rule = "  ".join("-" * width for width in widths).rstrip()
    return "\n".join([line(head), rule, *map(line, rows)])


def save(report: Mapping[str, object], path: Path) -> str:
    """Write a report to a file as strict JSON, and return that."""
    text = json.dumps(report, allow_nan=False, indent=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")
    return text
