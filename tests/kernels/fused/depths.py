"""How many additions each term of a sum along a row goes through, counted by the terms themselves.

For a process in which Numba compiles nothing: there a kernel takes any objects.
"""
# ruff: noqa: T201
# It prints depths.

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.rows import row_sums, statistics
from truenorm.kernels.fused.compiled.rows.sums import depth_of_sum, space_of_sums

SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 67, 127, 128, 129, 255, 256, 257, 385, 513, 1000, 4099)


class Term:
    """A number that knows through how many additions it went; adding nothing is no addition."""

    def __init__(self, depth: int | None = 0) -> None:
        self.depth = depth  # None is zero

    def __add__(self, other: "Term") -> "Term":
        if self.depth is None or other.depth is None:
            return other if self.depth is None else self
        return Term(1 + max(self.depth, other.depth))

    def __sub__(self, other: Any) -> "Term":
        """Centring makes a term of a term: its error is counted elsewhere."""
        return self

    __mul__ = __truediv__ = __sub__


def fill_with_zeros(array: Any, value: float) -> None:
    """Do what `fill` does, in terms."""
    assert value == 0
    array[:] = [Term(None) for _ in array]


def terms(count: int) -> Any:
    return np.array([Term() for _ in range(count)], object)


def main() -> None:
    """Print for each size what is claimed, and what the sums of both passes count."""
    for module in (row_sums, statistics):
        decoding = [name for name in vars(module) if name.startswith("decode")]
        for name in decoding:
            setattr(module, name, lambda value, *_: value)
        setattr(module, "fill", fill_with_zeros)  # noqa: B010
    for size in SIZES:
        lengths = [int(space_of_sums(size, each.WIDTH)) for each in (statistics, row_sums)]
        forward = statistics._moments(terms(size), 0.0, terms(lengths[0]))
        backward = row_sums.row_sums(
            terms(size), terms(size), terms(size), 0.0, 0.0, True, terms(lengths[1])
        )
        print(size, int(depth_of_sum(size)), *(term.depth for term in (*forward, *backward)))
