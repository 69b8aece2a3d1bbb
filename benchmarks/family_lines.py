"""Difficult rows: every line of the table of `benchmarks.family_cost`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# The families are those of the tests, which are no installed package: one list for both, so that
# what is proved right there is what is timed here. The tests have "tests" on their path too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

# isort: split
from promise.families import (
    DY_KINDS,
    EPSILONS,
    X_FAMILIES,
    Case,
    make_dy,
    make_parameter,
    make_x,
)

__all__ = ["TERMS", "Data", "Terms", "lines"]


@dataclass(frozen=True)
class Terms:
    """What a backend is held to, in units of normal data, and how many rows it is given.

    A fast one is given more, or the ratio would tell of what a call costs and not of the rows.
    """

    rows: int
    limit: float  # for what occurs in practice by the million
    goal: float


TERMS = {"reference": Terms(64, 2.0, 100.0), "native": Terms(512, 2.0, 20.0)}


@dataclass(frozen=True)
class Data:
    """One line of the table: what x, dy, gamma and beta are like."""

    name: str
    x: str = "normal"
    dy: str = "random"
    plain_parameters: bool = False  # gamma 1 and beta 0 in place of random ones
    eps: float = 1e-5
    common: bool = False  # it occurs in practice by the million

    def build(self, dtype: np.dtype[Any], rows: int, size: int) -> Case:
        """Make the arrays."""
        x = make_x(self.x, dtype, rows, size, 0)
        by_value = {"ones": 1, "zeros": 0}
        if self.dy in by_value:
            dy = np.full_like(x, by_value[self.dy])
        elif self.dy == "integers":
            dy = make_x("integers", dtype, rows, size, 1)
        else:
            dy = make_dy(self.dy, x, 0)
        gamma, beta = (make_parameter("random", dtype, size, seed) for seed in (0, 1))
        if self.plain_parameters:
            gamma, beta = np.ones(size, dtype), np.zeros(size, dtype)
        return Case(self.name, x, gamma, beta, dy, self.eps)


def lines() -> Iterator[Data]:
    """Every family, every kind of dy, every eps; and first the common kinds."""
    plain = ", gamma 1, beta 0"
    yield Data(f"dy 1{plain} (y.sum())", dy="ones", plain_parameters=True, common=True)
    for family in ("zero", "integers"):
        yield Data(f"x {family}", family, common=True)
        yield Data(f"x {family}{plain}", family, plain_parameters=True, common=True)
    yield Data("x zero, dy 0", "zero", "zeros", common=True)
    yield Data(f"x integers, dy 1{plain}", "integers", "ones", plain_parameters=True, common=True)
    yield Data(
        f"x integers, dy integers{plain}",
        "integers", "integers", plain_parameters=True, common=True,
    )  # fmt: skip
    for family in X_FAMILIES:
        if family not in ("normal", "zero", "integers"):
            yield Data(f"x {family}", family)
    for kind in DY_KINDS:
        if kind != "random":
            yield Data(f"dy {kind}", dy=kind)
    yield Data(f"dy proportional{plain}", dy="proportional", plain_parameters=True)
    # Rows x and -x with one dy: every element of dgamma is exactly zero, and only integers know.
    yield Data("x mirrored, dy same_in_all_rows", "mirrored", "same_in_all_rows")
    for eps in EPSILONS:
        if eps != 1e-5:
            yield Data(f"eps {eps:g}", eps=eps)
    for family in ("integers", "plus_minus_one", "scale_subnormal"):
        yield Data(f"x {family}, eps 0", family, eps=0.0)
