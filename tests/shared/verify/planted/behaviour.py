"""Planted bugs of behaviour: layout, batch, repetition, special values, types and memory."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.verify.planted.kernels import (
    Altered,
    Kernel,
    Results,
    Saved,
    plant,
    read_contiguously,
    to_24_bits,
)
from truenorm.verify.types import Array, Float64s


class StrideIgnored(Kernel):
    """The elements of a row are read one after the other, whatever the last stride is."""

    def rows_of(self, array: Array) -> Float64s:
        strides = (*array.strides[:-1], array.itemsize)
        return super().rows_of(np.lib.stride_tricks.as_strided(array, array.shape, strides))


def zero_rows_beyond_65535(result: Float64s, *_: Any) -> Float64s:
    result[65_535:] = 0
    return result


def in_blocks(squares: Float64s, block: int) -> Float64s:
    """Return mean squares whose blocks are summed in float32, as a column."""
    starts = range(0, squares.shape[1], block)
    partial = to_24_bits(np.add.reduceat(squares, starts, axis=1))
    means: Float64s = partial.sum(axis=1, keepdims=True) / squares.shape[1]
    return means


class BlockByBatch(Kernel):
    """Squares are summed over larger blocks from a number of rows on."""

    def __init__(self, rows: int = 256) -> None:
        self.rows = rows

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        return in_blocks(centred * centred, 8 if len(rows) < self.rows else 64)


def flushed(values: Array) -> Array:
    """Return values with zero for those below the normal range of float32."""
    return np.where(np.abs(values) < np.finfo(np.float32).tiny, values.dtype.type(0), values)


def other_results(of: Callable[[Array], Array]) -> Altered:
    return Altered(cast=lambda result, *_: of(result))


def without_nan(result: Array) -> Array:
    return np.nan_to_num(result, posinf=np.inf, neginf=-np.inf)


class RefusesOneColumn(Kernel):
    """A row of one element is an error."""

    def statistics(self, x: Array, *rest: Any) -> Saved:
        if x.shape[-1] == 1:
            raise ValueError("a row needs two elements for a variance")
        return super().statistics(x, *rest)


class RefusesLargeEps(Kernel):
    """An eps above 1e-3 is an error."""

    def forward(self, x: Array, gamma: Any, beta: Any, eps: float) -> tuple[Array, Any]:
        if eps > 1e-3:
            raise ValueError(f"eps must be at most 0.001, got {eps}")
        return super().forward(x, gamma, beta, eps)


class DamagesX(Kernel):
    """y is written over x."""

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x.copy(), *rest)
        x[...] = y
        return y, saved


class DamagesByGradient(Kernel):
    """A gradient is written over the input that it belongs to."""

    def __init__(self, place: int) -> None:
        self.place = place

    def backward(self, dy: Array, saved: Any) -> Results:
        results = super().backward(dy, saved)
        (dy, saved.gamma, saved.beta)[self.place][...] = results[self.place]
        return results


PROPERTIES = [
    plant(StrideIgnored(), "last-axis stride ignored", also=["strides"], y="wrong"),
    plant(Altered(output=zero_rows_beyond_65535, project=zero_rows_beyond_65535),
        "rows beyond 65,535 skipped", y="wrong", dx="wrong"),
    plant(BlockByBatch(), "a row depending on its batch", verdict="batch-invariant"),
    plant(Altered(rows_of=lambda rows, _: flushed(rows)), "subnormal inputs flushed",
        verdict="subnormals kept"),
    plant(other_results(flushed), "subnormal outputs flushed", verdict="subnormals kept"),
    plant(other_results(without_nan), "NaN swallowed", verdict="special values"),
    plant(Altered(output=lambda y, saved: y + 0 * saved.x.astype(np.float64).sum()),
        "NaN spread to other rows", verdict="special values"),
    plant(other_results(np.zeros_like), "zeros returned",
        **dict.fromkeys(("y", "dx", "dgamma", "dbeta"), "wrong")),
    plant(Altered(forward=lambda results, *_: (results[0].astype(np.float64), results[1])),
        "float64 returned for float32", verdict="runs"),
    plant(RefusesOneColumn(), "an error at D = 1", verdict="runs"),
    plant(RefusesLargeEps(), "eps from 1e-3 on refused", verdict="runs"),
    plant(other_results(lambda result: result + 0j if result.shape[-1:] == (1,) else result),
        "complex numbers at D = 1", verdict="runs"),
    plant(DamagesX(), "in-place damage to x", verdict="inputs kept"),
    plant(DamagesByGradient(0), "in-place damage to dy", verdict="inputs kept"),
    plant(DamagesByGradient(1), "in-place damage to gamma", verdict="inputs kept"),
    plant(DamagesByGradient(2), "in-place damage to beta", verdict="inputs kept"),
]  # fmt: skip


class NextNumber(Kernel):
    """One result is the next larger number where a condition of its shape holds."""

    def __init__(self, output: str, where: Callable[[int, int], bool]) -> None:
        self.output_there, self.where = output, where

    def there(self, output: str, result: Array) -> Array:
        """Return a result, or its neighbours."""
        if output != self.output_there or not self.where(*result.shape):
            return result
        return np.asarray(np.nextafter(result, result.dtype.type(np.inf)))

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x, *rest)
        return self.there("y", y), saved

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, dbeta = super().backward(dy, saved)
        return self.there("dx", dx), dgamma, dbeta


class RaceInOneOf(Kernel):
    """One element of a result is doubled in one of so many passes."""

    def __init__(self, output: str, passes: int) -> None:
        self.output_there, self.passes, self.done = output, passes, 0

    def there(self, output: str, result: Float64s) -> Float64s:
        """Return a result, with a change if it is its turn."""
        if output == self.output_there:
            self.done += 1
            if self.done % self.passes == 0:
                result.reshape(-1)[:1] *= 2
        return result

    def output(self, saved: Saved) -> Float64s:
        return self.there("y", super().output(saved))

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        return self.there("dgamma", super().dgamma(dy, xhat, saved))


class OtherBlocks(Kernel):
    """Squares of some rows are summed in float32 over blocks of another size."""

    def __init__(self, select: Callable[[Float64s], NDArray[np.bool_]]) -> None:
        self.select = select

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        squares, selected = centred * centred, self.select(rows)[:, np.newaxis]
        return np.where(selected, in_blocks(squares, 64), in_blocks(squares, 8))


def beside_padding(rows: Float64s) -> NDArray[np.bool_]:
    """Select blocks of 8 rows with a row of zeros, which is taken for padding."""
    blocks = np.arange(len(rows)) // 8
    return np.isin(blocks, blocks[(rows == 0).all(axis=1)])


class FusedByTurns(Kernel):
    """gamma*xhat is rounded to float32 before beta is added, in every second run."""

    turned = False

    def output(self, saved: Saved) -> Float64s:
        self.turned = not self.turned
        scaled = self.gamma(saved) * self.xhat(saved)
        return (to_24_bits(scaled) if self.turned else scaled) + self.beta(saved)


def in_quarters(terms: Float64s) -> Float64s:
    """Return the sum over rows, that of each quarter rounded to float32."""
    parts = [to_24_bits(part.sum(axis=0)) for part in np.array_split(terms, 4)]
    return np.asarray(np.sum(parts, axis=0))


RANDOM = np.random.default_rng(0)


class GradientsAsContiguous(Kernel):
    """dy is read as if its rows followed each other without a gap."""

    def backward(self, dy: Array, saved: Any) -> Results:
        return super().backward(read_contiguously(dy), saved)


INVARIANCE = [
    plant(OtherBlocks(lambda rows: np.arange(len(rows)) % 8 == 7),
        "a row depending on its place in a block", verdict="batch-invariant"),
    plant(OtherBlocks(beside_padding), "a row depending on zeros beside it",
        verdict="batch-invariant"),
    plant(NextNumber("y", lambda rows, size: rows < 8 and size >= 1024),
        "y of few wide rows rounded up", verdict="batch-invariant"),
    plant(NextNumber("dx", lambda rows, size: rows > 256 and size == 5120),
        "dx of many rows of 5120 rounded up", verdict="batch-invariant"),
    plant(NextNumber("y", lambda rows, _: rows == 8192), "y of 8192 rows rounded up",
        verdict="batch-invariant"),
    plant(RaceInOneOf("y", 500), "a race for y in one of 500 calls", verdict="repeatable"),
    plant(RaceInOneOf("dgamma", 500), "a race for dgamma in one of 500 calls",
        verdict="sums repeatable"),
    plant(FusedByTurns(), "y by fused products in every second run", verdict="repeatable"),
    plant(Altered(dgamma=lambda _, dy, xhat, __: in_quarters(RANDOM.permutation(dy * xhat))),
        "dgamma by rows in random order", verdict="sums repeatable"),
    plant(Altered(dgamma=lambda _, dy, xhat, __: in_quarters(dy * xhat)),
        "dgamma cut by the number of rows", also=["idle-rows"], verdict="idle rows"),
    plant(GradientsAsContiguous(), "dy read as contiguous", also=["layouts-of-gradients"],
        verdict="layouts of gradients"),
]  # fmt: skip


PLACES = 2**24


class OneBuffer(Kernel):
    """y and dbeta are in buffers that the next pass with as many elements overwrites."""

    def __init__(self, output: str) -> None:
        self.output_there = output
        self.buffers: dict[Any, Array] = {}

    def there(self, output: str, result: Array) -> Array:
        """Return a result, in the buffer if it is its turn."""
        if output != self.output_there:
            return result
        buffer = self.buffers.setdefault((result.shape, result.dtype), np.empty_like(result))
        buffer[...] = result
        return buffer

    def forward(self, x: Array, *rest: Any) -> tuple[Array, Any]:
        y, saved = super().forward(x, *rest)
        return self.there("y", y), saved

    def backward(self, dy: Array, saved: Any) -> Results:
        dx, dgamma, dbeta = super().backward(dy, saved)
        return dx, dgamma, None if dbeta is None else self.there("dbeta", dbeta)


class StaleWorkspace(Kernel):
    """A mean reads its row from a padded workspace, of which a call writes only D columns."""

    def __init__(self) -> None:
        self.spaces: dict[int, Float64s] = {}

    def mean(self, rows: Float64s) -> tuple[Float64s, Float64s]:
        count, size = rows.shape
        width = -(-size // 64) * 64
        space = self.spaces.get(width)
        if space is None or len(space) < count:
            space = self.spaces[width] = np.zeros((count, width))
        space[:count, :size] = rows
        return space[:count].sum(axis=1, keepdims=True) / size, np.zeros((count, 1))


class NotCleared(Kernel):
    """dgamma is added to that of earlier calls with as many columns."""

    def __init__(self) -> None:
        self.sums: dict[int, Float64s] = {}

    def dgamma(self, dy: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        size = dy.shape[1]
        self.sums[size] = self.sums.get(size, np.zeros(size)) + super().dgamma(dy, xhat, saved)
        return self.sums[size]


class CachedGamma(Kernel):
    """gamma is that of the first call with as many columns."""

    def __init__(self) -> None:
        self.cache: dict[int, Float64s] = {}

    def gamma(self, saved: Saved) -> Float64s:
        gamma = super().gamma(saved)
        return self.cache.setdefault(len(gamma), gamma)


class BlockByEarlierRows(Kernel):
    """The widest row so far of about this width decides over which blocks squares are summed."""

    def __init__(self) -> None:
        self.widest: dict[int, int] = {}

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        size = rows.shape[1]
        about = size + size % 2
        self.widest[about] = widest = max(size, self.widest.get(about, 0))
        return in_blocks(centred * centred, 8 if widest % 2 else 64)


class SavedIsSpent(Kernel):
    """Backward multiplies what was saved in place, so that it is good for one time."""

    def backward(self, dy: Array, saved: Any) -> Results:
        results = super().backward(dy, saved)
        saved.rstd[...] *= saved.rstd
        return results


def zero_elements_beyond(result: Float64s, *_: Any, places: int = PLACES) -> Float64s:
    result.reshape(-1)[places:] = 0
    return result


class PlacesInFloat32(Kernel):
    """The place of an element of dx is a float32 number, of which only every second is left."""

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:
        dx = super().project(dy, gamma, xhat, saved)
        flat = dx.reshape(-1)
        places = np.arange(PLACES, flat.size)
        flat[places] = flat[np.minimum(places.astype(np.float32).astype(int), flat.size - 1)]
        return dx


MEMORY = [
    plant(OneBuffer("y"), "y in a buffer that is used again", verdict="results kept"),
    plant(OneBuffer("dbeta"), "dbeta in a buffer that is used again", verdict="results kept"),
    plant(StaleWorkspace(), "a workspace not cleared", verdict="repeatable", y="wrong"),
    plant(NotCleared(), "dgamma not cleared", verdict="sums repeatable", dgamma="wrong"),
    plant(CachedGamma(), "gamma cached by width", y="wrong"),
    plant(BlockByEarlierRows(), "blocks by earlier rows", verdict="repeatable"),
    plant(SavedIsSpent(), "backward spends what was saved", verdict="saved kept"),
    plant(Altered(output=zero_elements_beyond, project=zero_elements_beyond),
        "elements beyond 2^24 left out", verdict="large calls"),
    plant(PlacesInFloat32(), "places in float32", verdict="large calls"),
    plant(Altered(output=partial(zero_elements_beyond, places=2 * PLACES)),
        "elements of y beyond 2^25 left out", verdict="large calls"),
]  # fmt: skip
