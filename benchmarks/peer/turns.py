"""Peers take turns: one computes, all others sleep."""

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peer.goals import MEGABYTE, Figure
from benchmarks.peer.process import PeerProcess, all_cpu_seconds
from truenorm.tools.progress import status_line

__all__ = ["Turns", "label"]

# Pools of threads spin for some milliseconds after work, waiting for more of it.
PAUSE = 0.05
ITEMSIZE = {"float32": 4, "float64": 8}


def label(shape: tuple[int, ...]) -> str:
    """Return a shape as it is written in a heading and on the command line."""
    return "x".join(map(str, shape))


@dataclass
class Turns:
    """How long and how often, and how much of the cores others used during the turns."""

    rounds: int
    seconds: float
    dtype: str = "float32"
    operation: str = "layer_norm"
    seed: int = 0
    _elapsed: float = field(default=0.0, init=False)
    _sleepers: float = field(default=0.0, init=False)
    _strangers: float = field(default=0.0, init=False)

    def disturbance(self) -> dict[str, float]:
        """Return how many cores were taken, on average, from the peer whose turn it was."""
        elapsed = self._elapsed or 1.0
        return {
            "by_other_peers": self._sleepers / elapsed,
            "by_other_programs": self._strangers / elapsed,
        }

    def figures(
        self, shape: tuple[int, ...], processes: Sequence[PeerProcess]
    ) -> Iterator[Figure]:
        """Time every contestant of every peer at one shape."""
        entrants = []
        checksums = set()
        for process in processes:
            status_line(f"{label(shape)}: {process.peer.name} prepares")
            asked = {"shape": shape, "seed": self.seed, "dtype": self.dtype}
            prepared = process.ask("prepare", operation=self.operation, **asked)
            checksums.add(prepared["checksum"])
            entrants += [(process, k, each) for k, each in enumerate(prepared["contestants"])]
        if len(checksums) > 1:
            raise RuntimeError(f"the peers drew different numbers at {label(shape)}")
        answers: list[list[dict[str, float]]] = [[] for _ in entrants]
        for number in range(self.rounds):
            status_line(f"{label(shape)}: round {number + 1} of {self.rounds}")
            # Each round begins with another one, so that nobody always follows the same.
            first = number * len(entrants) // self.rounds
            for k in [*range(first, len(entrants)), *range(first)]:
                process, which, _ = entrants[k]
                answers[k].append(self._turn(process, which, processes))
        status_line()
        for (process, _, described), turns in zip(entrants, answers, strict=True):
            yield _figure(shape, ITEMSIZE.get(self.dtype, 2), process, described, turns)

    def _turn(
        self, process: PeerProcess, which: int, processes: Sequence[PeerProcess]
    ) -> dict[str, float]:
        """Let one contestant run, and note what the others did meanwhile."""
        time.sleep(PAUSE)
        others = [each for each in processes if each is not process]

        def spent() -> tuple[float, float, float]:
            asleep = sum(each.cpu_seconds() for each in others)
            return process.cpu_seconds(), asleep, all_cpu_seconds()

        before, start = spent(), time.perf_counter()
        answer: dict[str, float] = process.ask("time", which=which, seconds=self.seconds)
        self._elapsed += time.perf_counter() - start
        own, asleep, everyone = (b - a for a, b in zip(before, spent(), strict=True))
        self._sleepers += asleep
        self._strangers += everyone - own - asleep
        return answer


def _figure(
    shape: tuple[int, ...],
    itemsize: int,
    process: PeerProcess,
    described: dict[str, Any],
    turns: list[dict[str, float]],
) -> Figure:
    """Put the turns of a contestant together; the median is that of their medians."""
    return Figure(
        shape,
        math.prod(shape) * itemsize / MEGABYTE,
        described["direction"],
        process.peer.name,
        described["name"],
        described["writes_to"],
        statistics.median(turn["p50"] for turn in turns),
        statistics.fmean(turn["mean"] for turn in turns),
        min(turn["min"] for turn in turns),
        int(sum(turn["samples"] for turn in turns)),
        statistics.fmean(described["first_calls"]),
        max(described["first_calls"]),
    )
