"""Map rows to threads, by row length and type only.

The bits must depend neither on the device nor on the batch size, so neither takes part.
"""

import math
from functools import lru_cache
from typing import NamedTuple

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FloatFormat

STORAGES: dict[FloatFormat, int] = {FLOAT32: 0, FLOAT16: 1, BFLOAT16: 2}
"""The types, by their number in the source."""

LONGEST = 2**24
"""Elements of a row at most: up to there v of (E2) cannot cancel completely, with a margin."""

LOAD_BYTES = 16
"""Bytes that a thread reads at a time, if the row length allows it."""

ITEMS = 8
"""Elements of a row per thread, up to the largest number of threads."""

WARP, BLOCK = 32, 128
"""Threads that exchange numbers without a barrier; threads of a block with several rows."""

MOST_THREADS, MOST_WITH_SUMS = 512, 256
"""Threads of a block at most. Twice as many have half the registers each, and kernels spill;
kernels that sum over rows need twice the registers."""

ITEMS_IN_REGISTERS = 16
"""Elements per thread that fit in registers: of x in forward, of sums over rows in backward.

Backward reads rows a second time, from the cache.
"""

SHORT_RUN, LONG_RUN, SHORT_ROW = 16, 64, 1024
"""Rows of a run, which one team sums over: more of them where rows are short."""

HEADERS = ("dialect.h", "storage.h", "team.h", "statistics.h", "sums.h")

KERNELS = {
    "forward": ("forward.c",),
    "backward": ("backward.c",),
    "run_sums": ("run_sums.c",),
    "column_sums": ("column_sums.c",),
    "forward_tier2": ("double_double.h", "tier2.h", "tier2.c"),
    "backward_tier2": ("double_double.h", "tier2.h", "tier2.c"),
    "rows_tier2": ("double_double.h", "tier2.h", "columns_tier2.c"),
    "columns_tier2": ("double_double.h", "tier2.h", "columns_tier2.c"),
    "widen": ("double_double.h", "parameters.c"),
    "round_dgamma": ("double_double.h", "parameters.c"),
    "round_dbeta": ("double_double.h", "parameters.c"),
}
"""The files of each kernel, after the headers."""


class Plan(NamedTuple):
    """The constants of a kernel; macros of the source have the same names in capitals."""

    size: int
    storage: int
    centred: bool
    correct: bool
    vector: int
    """Elements that a thread reads at a time."""
    team: int
    """Threads of a row."""
    teams: int
    """Teams of a block."""
    x_in_registers: bool
    sums_in_registers: bool
    run: int
    """Rows whose sums over rows one team computes."""
    standalone: bool
    """True if nothing reads the row status."""

    @classmethod
    def of(
        cls,
        kernel: str,
        size: int,
        target: FloatFormat,
        *,
        centred: bool,
        correct: bool,
        standalone: bool = False,
    ) -> "Plan":
        """Return the plan of a kernel for rows of a length and a type."""
        backward = not kernel.startswith("forward")
        vector = math.gcd(size, LOAD_BYTES // (4 if target is FLOAT32 else 2))
        sums_in_registers = backward and size <= MOST_WITH_SUMS * ITEMS_IN_REGISTERS
        team = _team(size, MOST_WITH_SUMS if sums_in_registers else MOST_THREADS)
        return cls(
            size=size,
            storage=STORAGES[target],
            centred=centred,
            correct=correct,
            vector=vector,
            team=team,
            teams=max(1, BLOCK // team) if team <= WARP else 1,
            x_in_registers=not backward and _items(size, team, vector) <= ITEMS_IN_REGISTERS,
            sums_in_registers=sums_in_registers,
            run=SHORT_RUN if size > SHORT_ROW else LONG_RUN,
            standalone=standalone,
        )

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.team * self.teams

    @property
    def depth(self) -> int:
        """Additions that an element goes through at most, here or in forward, (H1).

        Backward uses the statistics of forward, which may have more threads.
        """
        teams = self.team, _team(self.size, MOST_THREADS)
        return max(
            _items(self.size, team, self.vector) + 5 + max(1, team // WARP) for team in teams
        )

    @property
    def macros(self) -> dict[str, int]:
        """The constants as macros of the source."""
        return {name.upper(): int(value) for name, value in self._asdict().items()} | {
            "THREADS": self.threads,
            "DEPTH": self.depth,
        }

    @property
    def strips(self) -> int:
        """Blocks with a thread for each column."""
        return -(-self.size // self.threads)

    def runs(self, rows: int) -> int:
        """Return the number of runs of so many rows."""
        return -(-rows // self.run)

    def blocks(self, rows: int) -> int:
        """Return the number of blocks that have a team for each row, or run."""
        return -(-rows // self.teams)


def _team(size: int, most: int) -> int:
    """Return the threads of a row: a power of two."""
    return min(1 << (math.ceil(size / ITEMS) - 1).bit_length(), most)


def _items(size: int, team: int, vector: int) -> int:
    """Return the elements of a row per thread."""
    return math.ceil(size / (team * vector)) * vector


@lru_cache
def source_of(kernel: str) -> str:
    """Return the source of a kernel with its headers."""
    from importlib.resources import files  # slow to import, and the CPU backends need none of it

    folder = files("truenorm.kernels.gpu") / "source"
    names = (*HEADERS, *KERNELS[kernel])
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
