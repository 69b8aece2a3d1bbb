"""Planted bugs of RMSNorm: those of layer norm that it can have, and its own."""

from functools import partial
from typing import Any

import numpy as np

from shared.verify.planted import backward, behaviour, forward
from shared.verify.planted.kernels import BFLOAT16, Altered, Kernel, plant, round_to
from truenorm.verify.types import Float64s, dtype_of


class MeanSubtracted(Kernel):
    """What is handed in is a layer normalization; or its forward pass alone is."""

    def mean(self, rows: Float64s) -> tuple[Float64s, Float64s]:
        mean = self.mean_of(rows)
        return mean, np.zeros_like(mean)


def divided_by_the_tile(variance: Float64s, rows: Float64s, _: Float64s) -> Any:
    """Divide the sum of squares by the width of the padded row."""
    size = rows.shape[1]
    return variance * (size / (size + -size % 32))


class SquaresAddedIn(Kernel):
    """Squares are made and added up in a type of 16 bits."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype_of(dtype)

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        squares = (centred.astype(self.dtype) ** 2).astype(self.dtype)
        sums = np.add.accumulate(squares, axis=1, dtype=self.dtype)[:, -1:]
        variance: Float64s = sums.astype(np.float64) / rows.shape[1]
        return variance


def over_the_next_row(y: Float64s, _: Float64s) -> Float64s:
    """Two elements are written at a time, also at the end of a row of odd width."""
    if y.shape[-1] % 2 and y.shape[-1] > 700:
        y[1:, 0] = y[:-1, -1]
    return y


def zeros_between(above: int, below: float = float("inf")) -> forward.OtherOutput:
    """Rows of more than so many elements, and of fewer than so many others, are lost."""
    return forward.OtherOutput(lambda y, _: 0 * y if above < y.shape[-1] < below else y)


plant = partial(plant, of="rms_norm")
WRONG = dict.fromkeys(("y", "dx", "dgamma"), "wrong")

RMS_NORM = [
    plant(MeanSubtracted(), "layer norm handed in", **WRONG),
    plant(Altered(variance=forward.sample_variance), "squares divided by D-1", y="wrong"),
    plant(Altered(variance=divided_by_the_tile), "squares divided by the width of a tile",
        y="wrong"),
    plant(forward.EpsOutsideTheRoot(), "eps added outside the root", y="wrong"),
    plant(forward.OtherEps(lambda eps: float(np.float16(eps))), "eps cast to half"),
    plant(forward.OtherEps(lambda _: 1e-6), "a constant eps"),
    plant(forward.LastBlockDropped(64), "last partial block of 64 dropped", y="wrong"),
    plant(forward.LastBlockDropped(1024), "last partial block of 1024 dropped", y="wrong"),
    plant(Altered(variance=forward.squares_in_float32), "overflow of squares", y="unstable"),
    plant(forward.ClampedInput(9000), "x clamped to 9000", y="wrong"),
    plant(Altered(variance=forward.squares_in_half), "squares in float16", y="wrong"),
    plant(Altered(variance=forward.sum_of_squares_in_half), "sum of squares in float16",
        dtypes=["float16"], y="wrong"),
    plant(Altered(variance=forward.saturated_squares), "squares saturated", y="wrong"),
    plant(SquaresAddedIn("float16"), "squares added in float16", dtypes=["float16"]),
    plant(SquaresAddedIn("bfloat16"), "squares added in bfloat16", dtypes=["bfloat16"]),
    plant(Altered(rstd=lambda rstd, *_: round_to(rstd, BFLOAT16)), "inverse root in bfloat16",
        **WRONG),
    plant(forward.WrongDefaults(), "wrong without gamma", also=["no-gamma"], y="wrong"),
    plant(forward.OtherOutput(lambda y, _: 1.02 * y), "two percent too large",
        dtypes=["bfloat16"]),
    plant(forward.OtherOutput(forward.beta_at_hidden_sizes), "zeros at multiples of 128"),
    plant(zeros_between(11, 13), "wrong at D = 12", y="wrong"),
    plant(zeros_between(8192), "wrong above 8192", y="wrong"),
    plant(forward.OtherOutput(over_the_next_row), "the next row overwritten", y="wrong"),
    plant(forward.ComputedInFloat32(), "float64 computed in float32", dtypes=["float64"],
        y="wrong"),
    plant(Altered(to_save=backward.statistics_in_bfloat16), "rstd saved in bfloat16", dx="wrong"),
    plant(backward.XhatFromY(), "xhat recovered from y", dx="unstable", dgamma="unstable"),
    plant(backward.StaleForward(), "gradients of a stale forward pass", verdict="own state"),
    plant(backward.ScaledByItsLargest(), "dx is NaN in a row of padding", dx="wrong"),
    plant(backward.MeansWeighted(1, 1), "mean(g) subtracted", dx="wrong"),
    plant(backward.MeansWeighted(0, 0), "mean(g*xhat) dropped", dx="wrong"),
    plant(backward.MeansWeighted(0, 2), "mean(g*xhat) subtracted twice", dx="wrong"),
    plant(backward.GammaToPowers(0), "gamma forgotten in dx", dx="wrong"),
    plant(backward.GammaToPowers(2), "gamma squared in dx", dx="wrong"),
    plant(backward.GammaToPowers(0, 1), "gamma applied after the projection", dx="wrong"),
    plant(Altered(dgamma=lambda _, dy, __, saved: (dy * saved.x).sum(axis=0)),
        "dgamma from x instead of xhat", dgamma="wrong"),
    plant(backward.FirstOfOneAxis(), "dgamma of the first batch only", also=["ranks"]),
    plant(backward.PartialSumsInHalf(), "partial sums in float16", dgamma="wrong"),
    plant(backward.RowsDropped(lambda rows: rows - (6 <= rows < 264)), "last of some rows dropped",
        dgamma="wrong"),
    plant(backward.SumsByThread(), "dgamma depending on threads", verdict="sums repeatable"),
    plant(Altered(backward=lambda results, *_: (results[0], None, None)), "no dgamma",
        verdict="runs"),
    plant(behaviour.StrideIgnored(), "last-axis stride ignored", also=["strides"]),
    plant(Altered(**dict.fromkeys(("output", "project"), behaviour.zero_rows_beyond_65535)),
        "rows beyond 65,535 skipped", y="wrong", dx="wrong"),
    plant(behaviour.BlockByBatch(), "a row depending on its batch", verdict="batch-invariant"),
    plant(Altered(rows_of=lambda rows, _: behaviour.flushed(rows)), "subnormal inputs flushed",
        verdict="subnormals kept"),
    plant(behaviour.other_results(behaviour.without_nan), "NaN swallowed",
        verdict="special values"),
    plant(behaviour.other_results(np.zeros_like), "zeros returned", **WRONG),
    plant(behaviour.DamagesX(), "in-place damage to x", verdict="inputs kept"),
]  # fmt: skip
