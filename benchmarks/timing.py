"""What every benchmark shares: one thread, contestants taking turns, and where it ran.

Import this before NumPy: it asks the libraries under NumPy for one thread, and they look once,
when they are loaded.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

__all__ = ["Stopwatch", "machine", "table"]

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TRUENORM_THREADS")
os.environ.update(dict.fromkeys(ONE_THREAD, "1"))

Contestants = Mapping[str, Callable[[], object]]


@dataclass
class Stopwatch:
    """Times of contestants that take turns, so that whatever slows the machine slows them all.

    Only ratios between contestants of the same stopwatch mean anything.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    rounds: int = 0

    def go_round(self, contestants: Contestants) -> float:
        """Time each contestant once, beginning with another one each round; return the sum."""
        names = list(contestants)
        first = self.rounds % len(names)
        self.rounds += 1
        total = 0.0
        for name in names[first:] + names[:first]:
            start = time.perf_counter()
            contestants[name]()
            taken = time.perf_counter() - start
            self.add(name, taken)
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


def machine() -> dict[str, str]:
    """Say where, with what and when: no figure means anything without it."""
    return {
        "cpu": _cpu_model(),
        "cores": str(os.cpu_count()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "truenorm": version("truenorm"),
        "threads": os.environ["OMP_NUM_THREADS"],
        "date": datetime.now(UTC).date().isoformat(),
    }


def _cpu_model() -> str:
    """Return the name that Linux gives the processor, elsewhere what Python knows of it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a plain table: the first column to the left, the others to the right."""
    columns = list(zip(head, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *padded[1:]]).rstrip()

    rule = "  ".join("-" * width for width in widths).rstrip()
    return "\n".join([line(head), rule, *map(line, rows)])
