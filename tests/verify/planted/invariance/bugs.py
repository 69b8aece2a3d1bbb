"""Planted bugs whose results are right, and change with what should not matter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import Array, Float64s
from verify.planted.base import Kernel, Results, Saved, to_24_bits
from verify.planted.entry import plant
from verify.planted.relatives.layout_bugs import one_after_the_other


def in_blocks(squares: Float64s, block: int) -> Float64s:
    """Return mean squares whose blocks are summed in float32, as a column."""
    starts = range(0, squares.shape[1], block)
    partial = to_24_bits(np.add.reduceat(squares, starts, axis=1))
    means: Float64s = partial.sum(axis=1, keepdims=True) / squares.shape[1]
    return means


class OtherBlocks(Kernel):
    """Squares of some rows are summed in float32 over blocks of another size."""

    def others(self, rows: Float64s) -> NDArray[np.bool_]:
        raise NotImplementedError

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        squares = centred * centred
        others = self.others(rows)[:, np.newaxis]
        return np.where(others, in_blocks(squares, 64), in_blocks(squares, 8))


class ByPlace(OtherBlocks):
    """Those are the last of each block of 8 rows."""

    def others(self, rows: Float64s) -> NDArray[np.bool_]:
        return np.asarray(np.arange(len(rows)) % 8 == 7)


class ByPadding(OtherBlocks):
    """Those are in a block of 8 rows with a row of zeros, which is taken for padding."""

    def others(self, rows: Float64s) -> NDArray[np.bool_]:
        blocks = np.arange(len(rows)) // 8
        padding = (rows == 0).all(axis=1)
        return np.isin(blocks, blocks[padding])


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


class SumsAtRandom(Kernel):
    """dgamma adds rows up in float32 as they come, which is another order in each run."""

    random = np.random.default_rng(0)

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return in_quarters(self.random.permutation(slopes * xhat))


class SumsByNumber(Kernel):
    """dgamma adds up the float32 sums of four parts, each of a quarter of the rows."""

    def dgamma(self, slopes: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return in_quarters(slopes * xhat)


class GradientsAsContiguous(Kernel):
    """dy is read as if its rows followed each other without a gap."""

    def backward(self, dy: Array, saved: Any) -> Results:
        return super().backward(one_after_the_other(dy), saved)


INVARIANCE = [
    plant(ByPlace(), "a row depending on its place in a block", verdict="batch-invariant"),
    plant(ByPadding(), "a row depending on zeros beside it", verdict="batch-invariant"),
    plant(FusedByTurns(), "y by fused products in every second run", verdict="repeatable"),
    plant(SumsAtRandom(), "dgamma by rows in random order", verdict="sums repeatable"),
    plant(
        SumsByNumber(),
        "dgamma cut by the number of rows",
        also=["idle-rows"],
        verdict="idle rows",
    ),
    plant(
        GradientsAsContiguous(),
        "dy read as contiguous",
        also=["layouts-of-gradients"],
        verdict="layouts of gradients",
    ),
]
