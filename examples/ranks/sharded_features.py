"""A correctly rounded layer norm with columns on different ranks.

``mpiexec -n 3 python examples/ranks/sharded_features.py``; it needs mpi4py. From the other columns
a rank needs four sums per row, two for forward and two for backward. As integers they are exact,
so each rank rounds its elements correctly, with the internal module `truenorm.exact`.

This is only an example. Two exchanges per layer delay everything after them, so their latency
matters more than their size; and the exact arithmetic is Python, element by element. If a row fits
one rank, gather it there.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

import truenorm as tn
from truenorm.exact import FLOAT32, InverseRoot, Term, round_ratio, round_sum_of_roots

Array = NDArray[Any]
Integers = list[list[int]]

ROWS, WIDTH, EPS = 16, 48, 1e-5
UNIT = 149
"""Every float32 is a multiple of 2**-149."""
BITS = 32
"""Of a limb. 2**31 ranks can add theirs in an int64."""


def integers(values: Array) -> Integers:
    """Return numbers in units of 2**-149."""
    ratios = [[v.as_integer_ratio() for v in row] for row in values.tolist()]
    return [[(over << UNIT) // under for over, under in row] for row in ratios]


@dataclass
class Shard:
    """Some columns of x, dy, gamma and beta."""

    comm: Any
    x: Array
    dy: Array
    gamma: Array
    beta: Array
    width: int
    """Length of whole rows."""
    words: list[int] = field(default_factory=list)
    """Words per row of each exchange."""

    def __post_init__(self) -> None:
        """Convert the inputs to integers."""
        self.xs, self.dys = integers(self.x), integers(self.dy)
        self.gammas, self.betas = integers(np.stack([self.gamma, self.beta]))

    def add_over_ranks(self, *sums: list[int]) -> list[list[int]]:
        """Add integers over all ranks exactly: several sums, each with one integer per row."""
        ends = [(-_lowest_limb(each), _limb_count(each)) for each in sums]
        extents = np.array(ends, np.int64)
        self.comm.Allreduce(MPI.IN_PLACE, extents, op=MPI.MAX)
        ranges = [range(-below, above) for below, above in extents.tolist()]
        limbs = [_limbs(*pair) for pair in zip(sums, ranges, strict=True)]
        bucket = np.concatenate(limbs)
        self.comm.Allreduce(MPI.IN_PLACE, bucket, op=MPI.SUM)
        self.words.append(len(bucket))
        parts = np.split(bucket, np.cumsum([len(each) for each in ranges])[:-1])
        return [_integers(*pair) for pair in zip(parts, ranges, strict=True)]

    def forward(self) -> Array:
        """Return y (D1 to D6): one exchange."""
        squares = [sum(v * v for v in row) for row in self.xs]
        self.total, squares = self.add_over_ranks([sum(row) for row in self.xs], squares)
        n, over, under = self.width, *EPS.as_integer_ratio()
        self.scale = n << UNIT
        unit = n * self.scale**2
        # c = C/scale with C = n*X - sum(X), so w is a ratio of integers.
        self.centred = [
            [n * v - total for v in row] for row, total in zip(self.xs, self.total, strict=True)
        ]
        self.roots = [
            InverseRoot(n * (n * square - total * total) * under + over * unit, under * unit)
            for square, total in zip(squares, self.total, strict=True)
        ]
        y = [
            root.round_linear(g * c, b * self.scale, self.scale << UNIT, FLOAT32)
            for root, row in zip(self.roots, self.centred, strict=True)
            for g, c, b in zip(self.gammas, row, self.betas, strict=True)
        ]
        return np.reshape(y, self.x.shape).astype(np.float32)

    def backward(self) -> tuple[Array, Array, Array]:
        """Return dx (D17), dgamma and dbeta: one exchange; the last two need none."""
        gs = [[a * b for a, b in zip(self.gammas, row, strict=True)] for row in self.dys]
        along = [sum(map(int.__mul__, *pair)) for pair in zip(gs, self.xs, strict=True)]
        totals, along = self.add_over_ranks([sum(row) for row in gs], along)
        dx = [
            self._row_of_dx(root, centred, g, total, self.width * a - s * total)
            for root, centred, g, total, a, s in zip(
                self.roots, self.centred, gs, totals, along, self.total, strict=True
            )
        ]
        dgamma = [
            round_sum_of_roots(
                [Term(d[j] * c[j], self.scale << UNIT, root) for d, c, root in self._rows()],
                FLOAT32,
            )
            for j in range(len(self.gammas))
        ]
        dbeta = [
            round_ratio(sum(column), 1 << UNIT, FLOAT32) for column in zip(*self.dys, strict=True)
        ]
        return np.array(dx, np.float32), np.array(dgamma, np.float32), np.array(dbeta, np.float32)

    def _rows(self) -> Any:
        return zip(self.dys, self.centred, self.roots, strict=True)

    def _row_of_dx(
        self, root: InverseRoot, centred: list[int], g: list[int], total: int, along: int
    ) -> list[float]:
        under = EPS.as_integer_ratio()[1]
        n, slope = self.width, along * under * self.width
        denominator = n * root.numerator << (2 * UNIT)
        return [
            root.round_linear(
                (n * v - total) * root.numerator - c * slope, 0, denominator, FLOAT32
            )
            for v, c in zip(g, centred, strict=True)
        ]


def _lowest_limb(values: list[int]) -> int:
    """Return the position of the lowest limb that is not zero."""
    return min((((v & -v).bit_length() - 1) // BITS for v in values if v), default=0)


def _limb_count(values: list[int]) -> int:
    return max(abs(v).bit_length() for v in values) // BITS + 1


def _limbs(values: list[int], positions: range) -> NDArray[np.int64]:
    """Return limbs of shape (positions, rows); the last limb has the sign."""
    last = positions[-1]
    return np.array(
        [
            [v >> BITS * k if k == last else v >> BITS * k & (1 << BITS) - 1 for v in values]
            for k in positions
        ],
        np.int64,
    )


def _integers(limbs: NDArray[np.int64], positions: range) -> list[int]:
    columns = limbs.T.tolist()
    return [sum(d << BITS * k for d, k in zip(each, positions, strict=True)) for each in columns]


def fastest(comm: Any, function: Callable[[], Any], repeats: int = 200) -> float:
    """Return the least time in microseconds, of the slowest rank."""
    taken = []
    for _ in range(repeats):
        comm.Barrier()
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return 1e6 * float(comm.allreduce(min(taken), op=MPI.MAX))


def main() -> int:
    """Compare with whole rows on one rank, and print the cost of an exchange."""
    comm = MPI.COMM_WORLD
    random = np.random.default_rng(3)
    x, dy = random.standard_normal((2, ROWS, WIDTH)).astype(np.float32)
    x += np.float32(5)
    gamma, beta = random.standard_normal((2, WIDTH)).astype(np.float32)
    mine = slice(WIDTH * comm.rank // comm.size, WIDTH * (comm.rank + 1) // comm.size)
    shard = Shard(comm, x[:, mine], dy[:, mine], gamma[mine], beta[mine], WIDTH)
    results = (shard.forward(), *shard.backward())
    y, saved = tn.layer_norm_forward(x, gamma, beta, eps=EPS)
    expected = (y, *tn.layer_norm_backward(dy, saved))
    same = all(
        a.tobytes() == np.asarray(b)[..., mine].tobytes()
        for a, b in zip(results, expected, strict=True)
    )
    everywhere = comm.allreduce(int(same), op=MPI.MIN)
    words = np.zeros((max(shard.words), ROWS), np.int64)
    sums = np.zeros((2, ROWS), np.float32)
    exact, plain = (
        fastest(comm, partial(comm.Allreduce, MPI.IN_PLACE, each, op=MPI.SUM))
        for each in (words, sums)
    )
    if comm.rank == 0:
        print(f"ranks {comm.size}: the bits of whole rows: {'yes' if everywhere else 'no'}")
        print(f"bytes a row: {8 * sum(shard.words)}, in float32 16")
        print(f"one exchange of {ROWS} rows: {exact:.0f} us, of float32 {plain:.0f} us")
    return 0 if everywhere else 1


if __name__ == "__main__":
    raise SystemExit(main())
