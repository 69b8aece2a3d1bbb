"""``python -m benchmarks.scale.undecided``: how often a column is undecided, against (L10).

It is too seldom to be counted. So the error of real sums is multiplied by powers of two: what is
undecided then is counted, and held against what (L10) expects of that error.
"""
# ruff: noqa: T201
# A command prints its result.

import argparse
import math
import sys
from typing import NamedTuple

import numpy as np

from benchmarks.timing import heading, machine
from truenorm.exact import FLOAT32
from truenorm.kernels.fixed_point import FixedPoint, columns_and_error, round_columns
from truenorm.partials.gradients import PartialGradients
from truenorm.tools.text import table

FACTORS = (14, 16, 18, 20, 22)
"""Bits that the error is enlarged by."""


class Sums(NamedTuple):
    """Sums of terms of normal data, and their error in units of the first place."""

    number: FixedPoint
    error: int

    @property
    def relative_error(self) -> float:
        """The error over the root mean square of the columns."""
        columns = self.number.integers(np.arange(self.number.limbs.shape[1]))
        values = np.array([float(column) for column in columns])
        return self.error / math.sqrt(float(np.mean(values**2)))


def sums_of(rows: int, columns: int, seed: int) -> Sums:
    """Return the sums of a partial of normal float32 data."""
    import truenorm as tn

    x, dy = np.random.default_rng(seed).standard_normal((2, rows, columns)).astype(np.float32)
    gamma = np.ones(columns, np.float32)
    _, saved = tn.layer_norm_forward(x, gamma, backend="reference")
    partial: PartialGradients = tn.layer_norm_backward_partial(dy, saved, backend="reference")[1]
    return Sums(*columns_and_error(partial._dgamma))


def expected(relative_error: float, precision: int = FLOAT32.precision) -> float:
    """Return the share of normally distributed columns that are undecided (L10)."""
    delta = 2.0**precision * relative_error / math.log(2)
    return math.sqrt(2 / math.pi) * delta * (math.log(1 / delta) + 1.06)


def undecided(sums: Sums, bits: int) -> int:
    """Count the columns that an error so many bits larger leaves undecided."""
    return len(round_columns(sums.number, sums.error << bits, 1, FLOAT32)[1])


def report(batches: list[Sums], columns: int) -> str:
    """Return the table: what was found, and what is expected."""
    total = columns * len(batches)
    lines = []
    for bits in FACTORS:
        found = sum(undecided(sums, bits) for sums in batches)
        share = sum(expected(sums.relative_error * 2.0**bits) for sums in batches) / len(batches)
        lines.append([f"2^{bits}", f"{found}", f"{share * total:.1f}"])
    share = sum(expected(sums.relative_error) for sums in batches) / len(batches)
    lines.append(["1", f"{sum(undecided(sums, 0) for sums in batches)}", f"{share * total:.1e}"])
    head = ["error times", f"undecided of {total:,}", "expected by (L10)"]
    return table(head, lines) + f"\n\nat its own error, a column in {1 / share:.1e}"


def main(argv: list[str] | None = None) -> int:
    """Count and print."""
    described = argparse.ArgumentParser(prog="python -m benchmarks.scale.undecided")
    described.add_argument("--rows", type=int, default=128)
    described.add_argument("--columns", type=int, default=4096)
    described.add_argument("--batches", type=int, default=2)
    given = described.parse_args(argv)
    print(heading(machine()))
    print(f"\n{given.batches} x {given.rows} rows of {given.columns} columns, normal float32\n")
    batches = [sums_of(given.rows, given.columns, seed) for seed in range(given.batches)]
    print(report(batches, given.columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
