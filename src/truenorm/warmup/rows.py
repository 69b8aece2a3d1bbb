"""Small data that takes a call through all that can become of a row.

No kernel is named: whatever rows meet on their way is compiled, now and after the next change.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import FORMATS

__all__ = ["Inputs", "all_kinds"]

Array = NDArray[Any]
Float64s = NDArray[np.float64]

SHAPES = ((1, 1), (1, 64), (5, 3), (4, 67), (1, 1024), (1024, 67), (2, 40_000))
"""A row alone, short and long ones; the last but one is work for several threads."""


class Inputs(NamedTuple):
    """The arguments of both passes: first numbers, then arrays of a type."""

    x: Array
    gamma: Array | None
    beta: Array | None
    dy: Array
    eps: float = 1e-5

    def cast(self, dtype: np.dtype[Any], of_parameters: np.dtype[Any]) -> "Inputs":
        """Return the arrays in these types."""
        gamma, beta = (
            None if each is None else each.astype(of_parameters)
            for each in (self.gamma, self.beta)
        )
        return Inputs(self.x.astype(dtype), gamma, beta, self.dy.astype(dtype), self.eps)


def all_kinds(dtype: np.dtype[Any], parameters: Sequence[np.dtype[Any]]) -> Iterator[Inputs]:
    """Yield data of a type, with gamma and beta of each of these types.

    They are wider in mixed precision, and where ``np.ones`` made them.
    """
    with np.errstate(all="ignore"):
        for numbers in (*_ordinary(), *_refused(dtype), *_by_rule(dtype)):
            for of_parameters in parameters:
                yield numbers.cast(dtype, of_parameters)


def _normal(rows: int, size: int) -> Inputs:
    random = np.random.default_rng([rows, size])
    x, dy = random.standard_normal((2, rows, size))
    gamma, beta = random.standard_normal((2, size))
    return Inputs(x, gamma, beta, dy)


def _ordinary() -> Iterator[Inputs]:
    """Yield normal numbers in many shapes, and without parameters."""
    for shape in SHAPES:
        yield _normal(*shape)
    yield _normal(4, 67)._replace(gamma=None, beta=None)


def _refused(dtype: np.dtype[Any]) -> Iterator[Inputs]:
    """Yield data with results that no rounding test accepts: midpoints, and sums that are zero.

    Rows of 1, 1, -1, -1 are their own xhat if eps is zero. So integers and odd eighths that have
    one bit too many together make midpoints: of y as gamma and beta, of dgamma as dy of two rows;
    half of them, as the first two dy of a row, make one of its first dx. Rows of 7, 1 have the
    mean square 25: without mean and beta, y is 7/5 of gamma, here an odd number of one bit too
    many.
    """
    precision, size = FORMATS[dtype.name].precision, 64
    top = 2 ** (precision - 3)
    random = np.random.default_rng(0)
    integers = random.integers(top + 1, 2 * top, size).astype(np.float64)
    eighths = (2 * random.integers(0, 4, size) + 1) / 8
    signs = np.tile([1.0, 1.0, -1.0, -1.0], (2, size // 4))
    yield Inputs(signs, integers, eighths, np.stack([integers, eighths]), 0.0)
    dy = np.zeros((size, 4))
    dy[:, 0], dy[:, 1] = integers // 2, eighths / 2
    yield Inputs(np.tile(signs[:1, :4], (size, 1)), np.ones(4), np.zeros(4), dy, 0.0)
    fifths = 2 * random.integers(2**precision // 14 + 1, 2**precision // 10, size) + 1
    yield Inputs(np.tile([[7.0, 1.0]], size // 2), 5.0 * fifths, None, np.ones((1, size)), 0.0)
    x = _normal(1, size).x
    yield Inputs(np.concatenate([x, -x]), integers, eighths, np.ones((2, size)))


def _by_rule(dtype: np.dtype[Any]) -> Iterator[Inputs]:
    """Yield numbers too far apart for a sum of pairs or not finite, and rows without spread."""
    kind, normal = FORMATS[dtype.name], _normal(4, 67)
    large, small = 2.0 ** (kind.limit - 2), 2.0**kind.quantum
    for special in (large, small, np.inf, np.nan):
        x, dy = np.copy(normal.x), np.copy(normal.dy)
        x[1, 2] = dy[2, 3] = special
        yield normal._replace(x=x)
        yield normal._replace(dy=dy)
        yield normal._replace(gamma=x[1], beta=dy[2])
    constant, dy = np.copy(normal.x), np.copy(normal.dy)
    constant[2] = 1.0
    dy[0], dy[1] = large, small
    yield normal._replace(x=constant, dy=dy)
    yield normal._replace(x=constant, eps=0.0)
