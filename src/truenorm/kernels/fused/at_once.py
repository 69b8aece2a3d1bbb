"""Calls on arrays that lie in memory as kernels take them: straight to the kernels.

Nothing is prepared that grows with a row, and small calls stay on their own thread. What a kernel
does not do, or refuses, is handed on: the driver does it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numba.core import config
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FLOAT64, FloatFormat
from truenorm.kernels.backend import RowSums, States
from truenorm.kernels.call import Settings
from truenorm.kernels.fused import blocks
from truenorm.kernels.fused.blocks import (
    Coded,
    row_ranges,
    rows_of_block,
    rows_together,
    threads_for,
)
from truenorm.kernels.fused.compiled.small import LONGEST, MOST
from truenorm.kernels.fused.fast.single import parts_with_sums, rows_with_sums
from truenorm.kernels.fused.kernels import kernels_for
from truenorm.kernels.fused.scratch import scratch
from truenorm.kernels.ground import DONE, REFUSED
from truenorm.kernels.rows import Range, blocks_of
from truenorm.kernels.sweeping import in_parts, merged

__all__ = ["backward", "forward", "small_backward"]

Array = NDArray[Any]
Float64 = NDArray[np.float64]

Found = TypeVar("Found")

_COMPILES = not getattr(config, "DISABLE_JIT", False)


def forward(
    settings: Settings, target: FloatFormat, x: Array, gamma: Any, beta: Any, y: Array
) -> tuple[Float64, States | None] | None:
    """Write y of rows; return what is kept and, if some are refused, what became of each.

    None if the kernel is not for these numbers: then nothing that was written means anything.
    """
    kernels = kernels_for(settings, target)
    if kernels is None:
        return None
    kernel = _quiet(kernels.forward)
    count = len(x)
    if gamma is None or beta is None:
        gamma, beta = _parameters(gamma, beta, x)
    if target is not FLOAT32:
        x, gamma, beta, y = _coded(x), _coded(gamma), _coded(beta), _coded(y)
    kept, states = np.empty((count, settings.norm.numbers_kept)), np.empty(count, np.uint8)
    eps, centred = settings.eps, True if settings.norm.centred else None
    threads = threads_for(x.size, settings.threads)
    if threads == 1:
        left = kernel(x, gamma, beta, eps, centred, y, kept, states, scratch())
    else:
        others = gamma, beta, eps, centred
        left = _forward_on_threads(kernel, (x, y, kept, states), others, threads)
    return (kept, None) if left == 0 else _outcome(left, target, states, kept)


def _forward_on_threads(
    kernel: Any, rows: tuple[Array, ...], others: tuple[Any, ...], threads: int
) -> int:
    """Do forward in blocks, on several threads; return how many rows are not done."""
    x, y, kept, states = rows

    def work(part: slice) -> int:
        left: int = kernel(x[part], *others, y[part], kept[part], states[part], scratch())
        return left

    return _not_done(work, _blocks(len(x), x.shape[1], threads), threads)


def _not_done(work: Callable[[slice], int], parts: list[Range], threads: int) -> int:
    """Do the work for all parts; return how many rows are not done, or less than none."""
    results: list[int] = []
    in_parts(lambda k: results.append(work(slice(*parts[k]))), len(parts), threads)
    return -1 if min(results) < 0 else sum(results)


def _parameters(gamma: Any, beta: Any, x: Array) -> tuple[Array, Array]:
    """Return parameters, of which at least one was not given."""
    given = gamma if beta is None else beta
    dtype = x.dtype if given is None else given.dtype
    if gamma is None:
        gamma = _same(1.0, x.shape[1], dtype)
    return gamma, _same(0.0, x.shape[1], dtype) if beta is None else beta


def small_backward(
    settings: Settings,
    target: FloatFormat,
    dy: Array,
    x: Array,
    kept: Float64,
    parameters: tuple[Any, Any, Any],
    dx: Array,
) -> tuple[Any, Any] | None:
    """Do all of backward if it is small and easy; return the gradients of the parameters.

    Parameters are gamma, the type of its gradient and that of beta's.
    """
    size = x.shape[1]
    kernels = kernels_for(settings, target)
    if kernels is None or x.size >= blocks.SMALL or size > LONGEST or len(x) > MOST:
        return None
    if settings.rounding == "fast" and len(x) > rows_with_sums(len(x), size):
        return None
    kernel = _quiet(kernels.small_backward)
    gamma, of_gamma, of_beta = parameters
    scales = _same(1.0, size, x.dtype) if gamma is None else gamma
    if of_beta is not None and of_beta != scales.dtype:
        return None  # each pair of types would be compiled apart
    dgamma, dbeta = (
        np.empty(0 if each is None else size, scales.dtype) for each in (of_gamma, of_beta)
    )
    done = kernel(
        _coded(dy),
        _coded(x),
        kept,
        _coded(scales),
        settings.eps,
        True if settings.norm.centred else None,
        _coded(dx),
        _coded(dgamma),
        _coded(dbeta),
        scratch(),
    )
    if not done:
        return None
    return None if of_gamma is None else dgamma, None if of_beta is None else dbeta


def backward(
    settings: Settings,
    target: FloatFormat,
    dy: Array,
    x: Array,
    kept: Float64,
    gamma: Any,
    dx: Array,
) -> tuple[RowSums, States | None] | None:
    """Write dx of rows; return their sums and, if some are refused, what became of each.

    None as in forward.
    """
    kernels = kernels_for(settings, target)
    if kernels is None:
        return None
    size = x.shape[1]
    scales = _coded(_same(1.0, size, x.dtype) if gamma is None else gamma)
    dy, x, dx = _coded(dy), _coded(x), _coded(dx)
    states = np.empty(len(x), np.uint8)
    eps, centred = settings.eps, True if settings.norm.centred else None
    fast = settings.rounding == "fast"
    kernel = _quiet(kernels.backward)

    threads = threads_for(x.size, settings.threads)
    parts = _parts(len(x), size, threads, fast=fast)
    shares = {start: kernels.sums(size, target) for start, _ in parts}

    def work(part: slice) -> int:
        sums = shares[part.start]
        found = kernel(
            dy[part],
            x[part],
            kept[part],
            scales,
            eps,
            centred,
            dx[part],
            sums.array,
            states[part],
            scratch(),
        )
        return sums.note(part.stop - part.start, found)  # type: ignore[no-any-return]

    left = _not_done(work, parts, threads)
    if left < 0:
        return None
    sums: RowSums = merged(list(shares.values()))
    return _outcome(left, target, states, sums)


def _quiet(kernel: Any) -> Any:
    """Return a kernel that does not warn, which it would where NumPy computes in its place."""
    return kernel if _COMPILES else np.errstate(all="ignore")(kernel)


def _coded(array: Array) -> Coded:
    """Return an array as kernels take it: 16 bits by their bits."""
    if array.itemsize != 2:
        return array
    return array.view(np.int16 if array.dtype.kind == "f" else np.uint16)


@lru_cache(maxsize=8)
def _same(value: float, size: int, dtype: np.dtype[Any]) -> Array:
    """Return a parameter that was not given; nobody writes to it."""
    return np.full(size, value).astype(dtype)


def _outcome(
    left: int, target: FloatFormat, states: States, found: Found
) -> tuple[Found, States | None] | None:
    """Return what was found and, if some rows are refused, the states; None if some are special.

    Those have no result, or not by arithmetic alone; or they are of float64, and all they need
    is for pairs to find.
    """
    if left == 0:
        return found, None
    if left < 0 or target is FLOAT64 or not ((states == DONE) | (states == REFUSED)).all():
        return None
    return found, states


def _blocks(count: int, size: int, threads: int) -> list[Range]:
    """Return blocks of rows, at least one for each thread if there are so many groups."""
    together = rows_together(size)
    share = -(-count // (threads * together)) * together
    return list(blocks_of((0, count), min(rows_of_block(size), share)))


def _parts(count: int, size: int, threads: int, *, fast: bool) -> list[Range]:
    """Return the rows that have sums of their own."""
    if not fast:
        return row_ranges(count, size, threads)
    parts = parts_with_sums(count, size)
    return parts[:1] if len(parts) == 2 else parts  # to add nothing changes nothing
