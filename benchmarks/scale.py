"""``python -m benchmarks.scale``: model the cost of exact gradients over many ranks.

It fills the tables of docs/use/scale.md; ``python -m benchmarks.figures scale`` draws the model.
``--undecided`` counts undecided columns of partials instead, and compares that with (L10) of
docs/inside/partials.md.

The all-reduce is modelled by latency, bandwidth and the bytes that are added. The formulas are
those of Thakur, Rabenseifner and Gropp, *Optimization of collective communication operations in
MPICH* (2005). Only the bytes of a column are measured.
"""

import math
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import truenorm as tn
from benchmarks.common import DOCS, fill_page, heading, machine, markdown_table, options
from truenorm.exact import FLOAT32
from truenorm.kernels.fixed_point import FixedPoint, columns_and_error, round_columns

PAGE = DOCS / "use" / "scale.md"
RANKS = (2, 8, 64, 1024, 10_000)


@dataclass(frozen=True)
class Network:
    """The network between any two ranks."""

    latency: float = 2e-6
    """Seconds from one rank to another."""
    bandwidth: float = 50e9
    """Bytes a second out of each rank."""
    adding: float = 200e9
    """Bytes a second that a rank adds up."""

    def allreduce(self, ranks: int, size: float) -> float:
        """Return the seconds of an all-reduce of `size` bytes, by the best of three algorithms."""
        if ranks == 1:
            return 0.0
        steps = math.ceil(math.log2(ranks))
        share = (ranks - 1) / ranks * size
        at_best = 2 * share / self.bandwidth + share / self.adding
        return min(
            # Recursive doubling: each rank sends all, each time to another rank.
            steps * (self.latency + size / self.bandwidth + size / self.adding),
            # Halves are scattered, added and gathered (Rabenseifner), or pieces around a ring.
            2 * steps * self.latency + at_best,
            2 * (ranks - 1) * self.latency + at_best,
        )


class Times(NamedTuple):
    """Milliseconds of a step for the gradients of norms."""

    plain: float
    exact: float
    plain_by_layer: float
    exact_by_layer: float


@dataclass(frozen=True)
class Model:
    """The norms of a transformer."""

    columns: int = 8192
    norms: int = 192
    plain_bytes: float = 8
    """Of a column: dgamma and dbeta in float32."""
    exact_bytes: float = 48
    """Of a column: its words."""
    extent_bytes: int = 40
    """Of a norm: the five integers whose maximum is reduced first."""

    def times(self, ranks: int, network: Network) -> Times:
        """Return the times of a step, with all norms in one bucket and norm by norm."""

        def milliseconds(calls: int, *sizes: float) -> float:
            """Return the milliseconds of messages of these sizes, in `calls` calls."""
            of_call = self.norms / calls
            return 1e3 * calls * sum(network.allreduce(ranks, of_call * size) for size in sizes)

        plain = self.columns * self.plain_bytes
        exact = self.extent_bytes, self.columns * self.exact_bytes
        return Times(
            milliseconds(1, plain),
            milliseconds(1, *exact),
            milliseconds(self.norms, plain),
            milliseconds(self.norms, *exact),
        )

    @property
    def parameters(self) -> int:
        """Parameters of the model: a layer has two norms and 12 square matrices."""
        return 12 * self.columns**2 * self.norms // 2 + 2 * self.columns * self.norms


FACTORS = (14, 16, 18, 20, 22)
"""Bits by which the error is enlarged: without that, no column would be undecided."""


class Sums(NamedTuple):
    """Column sums of normal data, and their error in units of the lowest limb."""

    number: FixedPoint
    error: int

    @property
    def relative_error(self) -> float:
        """The error over the root mean square of the columns."""
        columns = self.number.integers(np.arange(self.number.limbs.shape[1]))
        values = np.array([float(column) for column in columns])
        return self.error / math.sqrt(float(np.mean(values**2)))


def partial_of(shape: tuple[int, int], dtype: str, seed: int = 0) -> tn.PartialGradients:
    """Return the partial of normal data."""
    if dtype == "bfloat16":
        import ml_dtypes  # noqa: F401  makes the type known to NumPy
    x, dy = np.random.default_rng(seed).standard_normal((2, *shape)).astype(np.dtype(dtype))
    gamma, beta = np.ones((2, shape[1]), x.dtype)
    _, saved = tn.layer_norm_forward(x, gamma, beta, backend="reference")
    return tn.layer_norm_backward_partial(dy, saved, backend="reference")[1]


def expected(relative_error: float, precision: int = FLOAT32.precision) -> float:
    """Return the share of normally distributed columns that are undecided (L10)."""
    delta = 2.0**precision * relative_error / math.log(2)
    return math.sqrt(2 / math.pi) * delta * (math.log(1 / delta) + 1.06)


def undecided_table(rows: int, columns: int, batches: int) -> str:
    """Return counts of undecided columns beside the expected ones."""
    partials = [partial_of((rows, columns), "float32", seed) for seed in range(batches)]
    sums = [Sums(*columns_and_error(each._dgamma)) for each in partials]
    total, lines = columns * batches, []
    for bits in (*FACTORS, 0):
        count = sum(
            len(round_columns(each.number, each.error << bits, 1, FLOAT32)[1]) for each in sums
        )
        share = sum(expected(each.relative_error * 2.0**bits) for each in sums) / batches
        factor, number = (
            (f"2^{bits}", f"{share * total:.1f}") if bits else ("1", f"{share * total:.1e}")
        )
        lines.append([factor, f"{count}", number])
    head = ["error times", f"undecided of {total:,}", "expected by (L10)"]
    return f"{markdown_table(head, lines)}\n\nat its own error, a column in {1 / share:.1e}"


TYPES = ("float32", "float16", "bfloat16")
COLUMNS = ("float32, one bucket", "exact, one bucket", "float32, by layer", "exact, by layer")
SHAPE = (64, 1024)


def bytes_of(partial: tn.PartialGradients) -> list[float]:
    """Return the bytes of a column: as words, in memory, and as bytes."""
    words = partial.to_words(partial.extent())
    return [size / SHAPE[1] for size in (words.nbytes, partial.nbytes, len(partial.tobytes()))]


def blocks(model: Model, network: Network) -> dict[str, str]:
    """Return the blocks of docs/use/scale.md."""
    sizes = [
        [dtype, "8", *(f"{size:.1f}" for size in bytes_of(partial_of(SHAPE, dtype)))]
        for dtype in TYPES
    ]
    head = ["type of x", "float32 sums", "words", "in memory", "as bytes"]
    times = [
        [f"{ranks:,}", *(f"{each:.2f}" for each in model.times(ranks, network))] for ranks in RANKS
    ]
    return {
        "bytes": markdown_table(head, sizes),
        "times": markdown_table(["ranks", *COLUMNS], times),
        "share": _share(model, network),
    }


def _share(model: Model, network: Network, ranks: int = 1024) -> str:
    """Compare exact norms with the all-reduce of all gradients."""
    whole = 1e3 * network.allreduce(ranks, 4 * model.parameters)
    times = model.times(ranks, network)
    more = times.exact - times.plain
    return (
        f"Such a model has {model.parameters / 1e9:.0f} billion parameters, of which "
        f"{2e6 * model.columns * model.norms / model.parameters:.0f} in a million belong to "
        f"norms. All gradients in float32 take {whole / 1e3:.1f} s over {ranks:,} ranks. Exact "
        f"gradients of the norms take {more:.1f} ms more, {100 * more / whole:.2f} %."
    )


def main(argv: list[str] | None = None) -> int:
    """Fill the tables of the page, or count undecided columns."""
    parser = options("scale", "Model all-reduces of gradients of norms.")
    parser.add_argument("--undecided", action="store_true", help="count undecided columns")
    if parser.parse_args(argv).undecided:
        rows, columns, batches = 128, 4096, 2
        print(heading(machine()), f"{batches} x {rows} rows of {columns} columns, normal float32",
              undecided_table(rows, columns, batches), sep="\n\n")  # fmt: skip
    else:
        fill_page(PAGE, blocks(Model(), Network()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
