"""How many additions each term of a sum along a row goes through, counted by the terms themselves.

For a process in which Numba compiles nothing: there a kernel takes any objects.
"""
# ruff: noqa: T201
# It prints depths.

from typing import Any

import numpy as np

from truenorm.kernels.fused.compiled.rows import row_sums, statistics, sums
from truenorm.kernels.fused.compiled.rows.sums import SPACE, depth_of_sum
from truenorm.kernels.ground import COLUMNS

SIZES = (1, 2, 3, 5, 8, 15, 16, 17, 31, 64, 67, 127, 128, 129, 255, 256, 257, 385, 513, 1000, 4099)


class Term:
    """A number that knows through how many additions it went; adding nothing is no addition."""

    def __init__(self, depth: int | None = 0) -> None:
        self.depth = depth  # None is zero

    def __add__(self, given: "Term | float") -> "Term":
        other = given if isinstance(given, Term) else Term(None)
        if self.depth is None or other.depth is None:
            return other if self.depth is None else self
        return Term(1 + max(self.depth, other.depth))

    __radd__ = __add__

    def __sub__(self, other: Any) -> "Term":
        """Centring makes a term of a term: its error is counted elsewhere."""
        return self

    __mul__ = __truediv__ = __sub__


def terms(count: int) -> Any:
    return np.array([Term() for _ in range(count)], object)


def add_exactly(lanes: Any, partial: Any, width: int) -> None:
    """Do what TwoSum does: nothing is lost, so that this is no addition."""
    for k in range(width):
        depths = [term.depth for term in (lanes[k], partial[k]) if term.depth is not None]
        lanes[k], lanes[k + width] = Term(max(depths, default=None)), Term()


def depths(add: Any, size: int, width: int) -> list[int]:
    """Return the depths of all sums of a row."""
    lanes = np.array([Term(None) for _ in range(2 * width)], object)
    for left in range(0, size, COLUMNS):
        columns = [terms(min(COLUMNS, size - left)) for _ in range(3)]
        partial = terms(SPACE)
        partial[SPACE - 2 * sums.SEGMENT :] = [Term(None)] * (2 * sums.SEGMENT)
        add(columns, left == 0, lanes, partial)
    firsts = range(0, width, sums.LANES)
    return [sums.total_of_lanes(lanes, first, width, size > COLUMNS).depth for first in firsts]


def main() -> None:
    """Print for each size what is claimed, and what the sums of both passes count."""
    sums._add_exactly = add_exactly
    for module in (row_sums, statistics):
        setattr(module, "decode", lambda value: value)  # noqa: B010

    def forward(columns: Any, first: bool, lanes: Any, partial: Any) -> None:
        statistics.add_moments(columns[0], 0.0, first, lanes, partial)

    def backward(columns: Any, first: bool, lanes: Any, partial: Any) -> None:
        x, dy, gamma = columns
        row_sums.add_row_sums(x, dy, gamma, 0.0, 0.0, True, first, lanes, partial)

    for size in SIZES:
        counted = depths(forward, size, statistics.WIDTH)
        counted += depths(backward, size, row_sums.WIDTH)
        print(size, int(depth_of_sum(size)), *counted)
