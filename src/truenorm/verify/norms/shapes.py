"""Cases of a norm in one shape, for kernels that take no other.

A case of the plain norm gets the columns of that shape, becomes a case of the norm, and its rows
are repeated.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from truenorm.verify.norms.grouped.cases import of_plain
from truenorm.verify.norms.norm import Norm
from truenorm.verify.norms.variants import adapt_case, within_limits
from truenorm.verify.operation import Case, require_support

Shape = tuple[int, ...]
MOST_ELEMENTS, WIDEST = 2**19, 2**14
"""Elements of x, and of a row of x: a score holds hundreds of such arrays."""
DISTINCT, DISTINCT_FLOAT64, MANY_DISTINCT = 2**13, 2**11, 2**16
"""Elements of the rows that are repeated: in most cases, in float64, and in one ordinary case.
Exact answers take time, those in float64 more."""


class Division(NamedTuple):
    """The number of rows of x, of units of a row, of elements of a unit, of channels of a unit."""

    rows: int
    units: int
    size: int
    channels: int = 0

    def distinct_rows(self, most: int) -> int:
        """Return how many rows of at most so many elements can be repeated to all rows."""
        few = range(1, min(self.rows, most // (self.units * self.size)) + 1)
        return max((each for each in few if self.rows % each == 0), default=1)


def divide_shape(norm: Norm, shape: Shape) -> Division:
    """Return how x of a shape is divided; raise ValueError if it cannot be scored."""
    require_support(norm, "score of a shape", "a score of one shape")
    if not shape or not all(type(each) is int and each > 0 for each in shape):
        raise ValueError(f"a shape must have whole numbers above 0, as (16, 1024); got {shape!r}")
    divided, text = _division(norm, shape), "x".join(map(str, shape))
    row, widest = divided.units * divided.size, min(WIDEST, norm.width or WIDEST)
    if divided.rows * row != prod(shape) or divided.size < 2:
        raise ValueError(f"{norm.spec} has no x of shape {text}")
    if prod(shape) > MOST_ELEMENTS or row > widest:
        raise ValueError(
            f"a shape must have at most {MOST_ELEMENTS} elements, {widest} in a row; got {text}"
        )
    if divided.rows > 1 and divided.distinct_rows(MANY_DISTINCT) == 1:
        raise ValueError(
            f"the number of rows must have a divisor from 2 to {MANY_DISTINCT // row}; got {text}"
        )
    return divided


def _division(norm: Norm, shape: Shape) -> Division:
    if not norm.has_axes:
        return Division(prod(shape[:-1]), norm.groups, shape[-1] // norm.groups)
    if len(shape) < 3 or norm.heads not in (0, shape[1]):
        raise ValueError(f"{norm.spec} has no x of shape {'x'.join(map(str, shape))}")
    rows, first, rest = shape[0], shape[1], prod(shape[2:])
    if norm.over == "channels":
        return Division(rows, rest, first)
    groups = norm.groups if norm.groups > 1 else first
    return Division(rows, groups, first // groups * rest, first // groups)


def with_columns(case: Case, size: int) -> Case:
    """Return a case with the first columns of all arrays; if these are too few, they repeat.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> with_columns(tv.case("float32-normal-4x3"), 8).shape
    (4, 8)
    """
    columns = np.resize(np.arange(case.shape[1]), size)
    arrays = {
        name: each if each is None else np.ascontiguousarray(each[..., columns])
        for name, each in case.inputs.items()
    }
    return case.with_inputs(**arrays)


def in_shape(norm: Norm, shape: Shape, plain: Case, most: int = 0) -> Iterator[Case]:
    """Yield a case of the plain norm as one of a norm in a shape, unless it cannot be one.

    The case has the columns of that shape. At most so many elements are not repeated, or as many
    as are usual.
    """
    divided = divide_shape(norm, shape)
    most = most or (DISTINCT_FLOAT64 if plain.dtype == "float64" else DISTINCT)
    once = plain.part(slice(plain.shape[0] // plain.repeats))
    made: Case | None = once
    if norm.has_units:
        made = of_plain(norm, once, divided.channels, divided.units)
    elif norm is not norm.plain:
        made = adapt_case(norm, once)
    for each in within_limits(norm, made) if made else ():
        elements = min(most, each.x.size)
        some = each.part(slice(divided.distinct_rows(elements)))
        whole = some.tiled(divided.rows // some.shape[0])
        yield replace(whole, only_shape=shape, enclosed=plain.dtype != "float64")
