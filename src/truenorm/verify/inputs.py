"""A case: the arguments of one forward and one backward pass, and what it is there to show."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from truenorm.verify.types import Array

__all__ = ["EXTENSIONS", "KINDS", "LAYOUTS", "Case"]

KINDS = ("ordinary", "sweep", "hard", "special", "subnormal")
"""Ordinary input must simply be right. A sweep raises the condition number step by step; hard
cases are rows that broke somebody. Special ones hold values that are not finite; subnormal ones
are about numbers that a processor may be told to flush."""

EXTENSIONS = {
    "no-gamma": "gamma is None, and nobody looks at dgamma",
    "no-beta": "beta is None, and nobody looks at dbeta",
    "ranks": "x has one axis, or three",
    "strides": "x and dy are views with gaps along the last axis",
    "zero-eps": "eps is 0, and no row is constant",
    "tiny-eps": "eps is a number that float32 does not have",
    "empty": "x has no rows",
    "float32-parameters": "gamma and beta are float32 whatever x is",
}
"""What is judged only where a subject asks for it, by name."""


def _with_gaps(rows: Array) -> Array:
    """Return the same values, each followed by a number that is none of them."""
    wide = np.full((*rows.shape, 2), 77.0, rows.dtype)
    wide[..., 0] = rows
    return wide[..., 0]


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda rows: rows,
    "one-axis": lambda rows: rows.reshape(-1),
    "three-axes": lambda rows: rows.reshape(2, -1, rows.shape[1]),
    "strided": _with_gaps,
}
"""How x and dy, which a case holds as rows, are given to the subject."""


@dataclass(frozen=True, eq=False)
class Case:
    """The arguments of a forward and a backward pass, x and dy as rows of D elements.

    Attributes
    ----------
    name : str
        Says all: the same name is the same case, on every machine.
    dtype : str
        The type of x and dy.
    x, dy : ndarray of shape (rows, D)
    gamma, beta : ndarray of shape (D,), or None
    eps : float
    kind : str
        One of `KINDS`.
    family : str
        What it has in common with other cases, without type and size.
    why : str
        What it is there to show.
    sources : tuple of str
        Where such a failure was reported.
    repeats : int
        x and dy are a few rows, so many times over: so the exact answer stays cheap.
    layout : str
        One of `LAYOUTS`.
    needs : frozenset of str
        The `EXTENSIONS` that a subject must have asked for.
    """

    name: str
    dtype: str
    x: Array = field(repr=False)
    gamma: Array | None = field(repr=False)
    beta: Array | None = field(repr=False)
    dy: Array = field(repr=False)
    eps: float
    kind: str = "ordinary"
    family: str = "ordinary"
    why: str = ""
    sources: tuple[str, ...] = ()
    repeats: int = 1
    layout: str = "rows"
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a kind or a layout that nobody knows."""
        if self.kind not in KINDS or self.layout not in LAYOUTS:
            raise ValueError(f"{self.name} has the kind {self.kind!r}, the layout {self.layout!r}")

    def __str__(self) -> str:
        """Return its name, which pytest shows."""
        return self.name

    def laid_out(self, rows: Array) -> Array:
        """Return x, or dy, in the layout in which the subject gets it."""
        return LAYOUTS[self.layout](rows)

    def part(self, rows: slice) -> "Case":
        """Return the same case with some of its rows alone."""
        return replace(self, x=self.x[rows], dy=self.dy[rows], repeats=1)

    def tiled(self, times: int) -> "Case":
        """Return the same case with its rows so many times over."""
        x, dy = (np.tile(rows, (times, 1)) for rows in (self.x, self.dy))
        return replace(self, x=x, dy=dy, repeats=times * self.repeats)
