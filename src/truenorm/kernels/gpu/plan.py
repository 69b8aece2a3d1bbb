"""How rows are laid on threads: decided by their length and type alone, for every interface.

Bits must depend neither on the device nor on the batch, so neither takes part in it.
"""

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from truenorm.exact import BFLOAT16, FLOAT16, FLOAT32, FloatFormat

__all__ = ["KERNELS", "LOAD_BYTES", "LONGEST", "LONG_RUN", "STORAGES", "Plan", "source_of"]

STORAGES: dict[FloatFormat, int] = {FLOAT32: 0, FLOAT16: 1, BFLOAT16: 2}
"""The types, by the number that the source knows them by."""

LONGEST = 2**24
"""Elements of a row: v of (E2) cannot cancel to nothing below that, with much room."""

LOAD_BYTES = 16
"""What a thread reads at a time, if rows allow it."""

ITEMS = 8
"""Elements that a thread has of a row, as long as there are threads."""

WARP, BLOCK = 32, 128
"""Threads that exchange numbers without a barrier; and of a block that has several rows."""

MOST_THREADS, MOST_WITH_SUMS = 512, 256
"""Of a block: with twice as many, a thread has half the registers, and kernels spill; those that
add up over rows need them twice."""

HELD_ITEMS, SUMMED_ITEMS = 16, 16
"""Elements that registers hold: of x in forward; of sums over rows in backward, which reads rows a
second time, since a cache answers."""

SHORT_RUN, LONG_RUN, SHORT_ROW = 16, 64, 1024
"""Rows whose share of dgamma and dbeta a team adds up: more of them where rows are short."""

KERNELS = {
    "forward": ("forward.c",),
    "backward": ("backward.c",),
    "shares": ("shares.c",),
    "columns": ("columns.c",),
    "forward_again": ("pairs.h", "rows.h", "again.c"),
    "backward_again": ("pairs.h", "rows.h", "again.c"),
    "rows_again": ("pairs.h", "rows.h", "columns_again.c"),
    "columns_again": ("pairs.h", "rows.h", "columns_again.c"),
    "widen": ("pairs.h", "finish.c"),
    "finish_gamma": ("pairs.h", "finish.c"),
    "finish_beta": ("pairs.h", "finish.c"),
}
"""The files of each kernel, beside the headers."""

HEADERS = ("dialect.h", "storage.h", "team.h", "statistics.h", "sums.h")


class Plan(NamedTuple):
    """The constants of a kernel. As macros of the source they have the same names, in capitals."""

    size: int
    storage: int
    centred: bool
    correct: bool
    vector: int
    team: int
    teams: int
    held: bool
    sums: bool
    run: int
    alone: bool

    @classmethod
    def of(
        cls,
        kernel: str,
        size: int,
        target: FloatFormat,
        *,
        centred: bool,
        correct: bool,
        alone: bool = False,
    ) -> "Plan":
        """Return the constants for rows of a length and a type."""
        backward = not kernel.startswith("forward")
        vector = math.gcd(size, LOAD_BYTES // (4 if target is FLOAT32 else 2))
        sums = backward and size <= MOST_WITH_SUMS * SUMMED_ITEMS
        most = MOST_WITH_SUMS if sums else MOST_THREADS
        team = _team(size, most)
        items = _items(size, team, vector)
        return cls(
            size=size,
            storage=STORAGES[target],
            centred=centred,
            correct=correct,
            vector=vector,
            team=team,
            teams=max(1, BLOCK // team) if team <= WARP else 1,
            held=not backward and items <= HELD_ITEMS,
            sums=sums,
            run=SHORT_RUN if size > SHORT_ROW else LONG_RUN,
            alone=alone,
        )

    @property
    def threads(self) -> int:
        """Of a block."""
        return self.team * self.teams

    @property
    def depth(self) -> int:
        """Additions that an element goes through at most, here or in forward, (H1).

        Backward has the statistics of forward, which may have more threads.
        """
        teams = self.team, _team(self.size, MOST_THREADS)
        return max(
            _items(self.size, team, self.vector) + 5 + max(1, team // WARP) for team in teams
        )

    @property
    def macros(self) -> dict[str, int]:
        """The constants, as a compiler is given them."""
        return {name.upper(): int(value) for name, value in self._asdict().items()} | {
            "THREADS": self.threads,
            "DEPTH": self.depth,
        }

    @property
    def strips(self) -> int:
        """Blocks that have a thread for each column."""
        return -(-self.size // self.threads)

    def runs(self, rows: int) -> int:
        """Return how many shares so many rows have."""
        return -(-rows // self.run)

    def blocks(self, rows: int) -> int:
        """Return how many blocks have a row, or a run, for each of their teams."""
        return -(-rows // self.teams)


def _team(size: int, most: int) -> int:
    """Return the threads of a row: a power of two."""
    return min(1 << (math.ceil(size / ITEMS) - 1).bit_length(), most)


def _items(size: int, team: int, vector: int) -> int:
    """Return the elements of a thread."""
    return math.ceil(size / (team * vector)) * vector


@lru_cache
def source_of(kernel: str) -> str:
    """Return the text of a kernel with all that it needs."""
    return "\n".join(_texts((*HEADERS, *KERNELS[kernel])))


def _texts(names: Iterable[str]) -> Iterable[str]:
    from importlib.resources import files  # slow to import, and a CPU needs none of it

    folder = files("truenorm.kernels.gpu") / "source"
    return [(folder / name).read_text(encoding="utf-8") for name in names]
