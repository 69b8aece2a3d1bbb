"""Correct mode over all rows: which kernel does what, and what is done for refused elements."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels import integers
from truenorm.kernels.backend import Parameter
from truenorm.kernels.fused.blocks import (
    Source,
    Target,
    blocks_within,
    held,
    in_blocks,
    threads_for,
)
from truenorm.kernels.fused.compiled.ground import REFUSED
from truenorm.kernels.fused.compiled.narrow import forward as narrow_forward
from truenorm.kernels.fused.compiled.pairs import forward as pair_forward
from truenorm.kernels.fused.scratch import aligned, scratch_of_forward, scratch_of_pairs
from truenorm.kernels.rounding import Tested, canonical_nan
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import special_y
from truenorm.kernels.storage import widen

__all__ = ["MASKED", "Columns", "forward", "nan_held", "stored_as", "takes_pairs", "write_special"]

Float64 = NDArray[np.float64]

MASKED = 2**16
"""Elements that are settled together: each has a flag."""


def takes_pairs(x: Rows, gamma: Parameter, beta: Parameter) -> bool:
    """Return whether float64 is not wide enough to work in, because one of them has it."""
    return x.target is FLOAT64 or gamma.target is FLOAT64 or beta.target is FLOAT64


def stored_as(target: FloatFormat) -> np.dtype[Any]:
    """Return the type of the arrays in which numbers of a type are stored."""
    return canonical_nan(target).dtype  # type: ignore[no-any-return]


@cache
def nan_held(target: FloatFormat) -> Any:
    """Return the NaN of a type as kernels of this backend take it."""
    return held(canonical_nan(target)[np.newaxis], target)[0]


@dataclass(frozen=True)
class Columns:
    """What every row needs of gamma and beta: their finite parts, weights, y of a constant row."""

    gamma: Float64
    beta: Float64
    weight: Float64
    constant: NDArray[Any]
    nan: Any
    special: NDArray[np.bool_] | None

    @classmethod
    def of(cls, gamma: Parameter, beta: Parameter, target: FloatFormat) -> "Columns":
        """Prepare the parameters of a call."""
        nan = canonical_nan(target)
        usable = aligned(3 * len(gamma.values)).reshape(3, -1)
        constant = held(np.empty(len(gamma.values), nan.dtype), target)
        some = narrow_forward.prepare(gamma.values, beta.values, usable, constant)
        special = None
        if some:
            special = ~(np.isfinite(gamma.values) & np.isfinite(beta.values))
            special |= (gamma.values == 0) & ~np.isfinite(widen(constant.view(nan.dtype), target))
        scale, shift, weight = usable
        return cls(scale, shift, weight, constant, nan_held(target), special)


def forward(
    x: Rows, gamma: Parameter, beta: Parameter, eps: float, y: Rows, threads: int | None
) -> Float64:
    """Write y, and return what is kept of each row."""
    wide = takes_pairs(x, gamma, beta)
    columns = Columns.of(gamma, beta, x.target)
    kept = np.empty((x.count, 3))
    source, target = Source(x), Target(y)

    def work(start: int, stop: int) -> None:
        found = target.block(start, stop)
        given = source.block_beside(found, start, stop)
        level = _wide_block if wide else _narrow_block
        level(given, columns, eps, found, kept[start:stop], x.target)
        if columns.special is not None:
            write_special(given, gamma, beta, columns, found, kept[start:stop], x.target)
        target.done(start, stop, found)

    blocks = blocks_within(0, x.count, x.size)
    in_blocks(work, blocks, threads_for(x, threads))
    return kept


def write_special(
    x: NDArray[Any],
    gamma: Parameter,
    beta: Parameter,
    columns: Columns,
    y: NDArray[Any],
    kept: Float64,
    target: FloatFormat,
) -> None:
    """Write y in the columns whose gamma or beta is not finite, by rule."""
    assert columns.special is not None
    defined = ~np.isnan(kept[:, 0])
    values = widen(x[defined].view(stored_as(target)), target)
    by_rule = special_y(values, gamma, beta, columns.special, target)
    y[np.ix_(defined, columns.special)] = held(by_rule, target)


def _narrow_block(
    x: NDArray[Any],
    columns: Columns,
    eps: float,
    y: NDArray[Any],
    kept: Float64,
    target: FloatFormat,
) -> None:
    """Levels 0 to 3 for types of at most float32."""
    status = np.empty(len(x), np.uint8)
    gamma, beta, weight, constant = columns.gamma, columns.beta, columns.weight, columns.constant
    if not narrow_forward.forward(
        x,
        gamma,
        beta,
        weight,
        constant,
        columns.nan,
        eps,
        y,
        kept,
        status,
        aligned(scratch_of_forward(x.shape[1])),
    ):
        return
    rows = np.flatnonzero(status == REFUSED)
    step = max(1, MASKED // x.shape[1])
    for some in (rows[k : k + step] for k in range(0, len(rows), step)):
        refused = np.empty((len(some), x.shape[1]), np.bool_)
        scratch = aligned(scratch_of_pairs(x.shape[1]))
        if pair_forward.settle_y(
            x, kept, gamma, beta, weight, constant, eps, y, some, refused, scratch
        ):
            _settle_y_in_integers(x, columns, eps, y, target, some, refused)


def _wide_block(
    x: NDArray[Any],
    columns: Columns,
    eps: float,
    y: NDArray[Any],
    kept: Float64,
    target: FloatFormat,
) -> None:
    """Levels 0, 2 and 3, where a float64 takes part."""
    refused = np.empty(x.shape, np.bool_)
    if pair_forward.forward(
        x,
        columns.gamma,
        columns.beta,
        columns.constant,
        columns.nan,
        eps,
        y,
        kept,
        refused,
        aligned(scratch_of_pairs(x.shape[1])),
    ):
        _settle_y_in_integers(x, columns, eps, y, target, np.arange(len(x)), refused)


def _settle_y_in_integers(
    x: NDArray[Any],
    columns: Columns,
    eps: float,
    y: NDArray[Any],
    target: FloatFormat,
    rows: NDArray[np.intp],
    refused: NDArray[np.bool_],
) -> None:
    """Level 3: put the correctly rounded y in the place of every refused one."""
    left = np.flatnonzero(refused.any(axis=1))
    rows = rows[left]
    stored = stored_as(target)
    tested = Tested(y[rows].view(stored), refused[left])
    values = widen(x[rows].view(stored), target)
    integers.settle_y(tested, values, columns.gamma, columns.beta, eps, target)
    y[rows] = held(tested.values, target)
