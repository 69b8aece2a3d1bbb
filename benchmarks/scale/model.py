"""A model of an all-reduce: latency, bandwidth, and bytes that are added up.

The formulas are those of Thakur, Rabenseifner and Gropp, *Optimization of collective communication
operations in MPICH* (2005). Nothing here is measured but the bytes of a column.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["RANKS", "Model", "Network", "Times"]

RANKS = (2, 8, 64, 1024, 10_000)


@dataclass(frozen=True)
class Network:
    """What lies between any two ranks."""

    latency: float = 2e-6
    """Seconds from one rank to another, however short the message."""
    bandwidth: float = 50e9
    """Bytes a second out of each rank."""
    adding: float = 200e9
    """Bytes a second that a rank adds up."""

    def allreduce(self, ranks: int, size: float) -> float:
        """Return the seconds of an all-reduce of so many bytes, by the best of three ways."""
        if ranks == 1:
            return 0.0
        steps = math.ceil(math.log2(ranks))
        share = (ranks - 1) / ranks * size
        at_best = 2 * share / self.bandwidth + share / self.adding
        return min(
            # Recursive doubling: everybody sends everything, each time to another rank.
            steps * (self.latency + size / self.bandwidth + size / self.adding),
            # Halves are scattered, added and gathered (Rabenseifner), or pieces around a ring.
            2 * steps * self.latency + at_best,
            2 * (ranks - 1) * self.latency + at_best,
        )


@dataclass(frozen=True)
class Times:
    """Milliseconds of a step that go into gradients of norms."""

    plain: float
    exact: float
    plain_by_layer: float
    exact_by_layer: float


@dataclass(frozen=True)
class Model:
    """A transformer, of which the norms are looked at."""

    columns: int = 8192
    norms: int = 192
    plain_bytes: float = 8
    """Of a column: dgamma and dbeta in float32."""
    exact_bytes: float = 48
    """Of a column: its words."""
    extent_bytes: int = 40
    """Of a norm: the five integers whose maximum goes before."""

    def times(self, ranks: int, network: Network) -> Times:
        """Return what a step takes, all norms in one bucket and one after the other."""

        def taken(calls: int, *sizes: float) -> float:
            """Return the milliseconds of messages of these sizes, all norms in so many calls."""
            of_call = self.norms / calls
            return 1e3 * calls * sum(network.allreduce(ranks, of_call * size) for size in sizes)

        plain = self.columns * self.plain_bytes
        exact = self.extent_bytes, self.columns * self.exact_bytes
        return Times(
            taken(1, plain), taken(1, *exact), taken(self.norms, plain), taken(self.norms, *exact)
        )

    @property
    def parameters(self) -> int:
        """How many the whole model has: two norms a layer, beside 12 square matrices."""
        return 12 * self.columns**2 * self.norms // 2 + 2 * self.columns * self.norms

    def rows(self, network: Network, ranks: Sequence[int] = RANKS) -> list[list[str]]:
        """Return the rows of the table, in milliseconds."""
        found = []
        for count in ranks:
            times = self.times(count, network)
            cells = (times.plain, times.exact, times.plain_by_layer, times.exact_by_layer)
            found.append([f"{count:,}", *(f"{cell:.2f}" for cell in cells)])
        return found
