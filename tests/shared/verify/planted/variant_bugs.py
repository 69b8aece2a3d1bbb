"""Planted bugs of norms as kernels ship them: recipes, residuals, gains, types and layouts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shared.verify.planted import forward
from shared.verify.planted.backward import StaleForward
from shared.verify.planted.behaviour import BlockByBatch, StrideIgnored
from shared.verify.planted.kernels import (
    BFLOAT16,
    PlantedBug,
    Saved,
    read_contiguously,
    to_24_bits,
)
from shared.verify.planted.variants import (
    ADD_LAYER_NORM,
    ADD_RMS_NORM,
    LLAMA,
    OF_THE_UNROUNDED,
    WIDE_ZERO_CENTRED,
    ZERO_CENTRED,
    AlteredVariant,
    ByRecipe,
    Changed,
    SavedCall,
    Variant,
    as_variant,
    plant,
    rounded,
)
from shared.verify.quantized.kernels import Kernel as QuantizedKernel
from shared.verify.quantized.kernels import quantized_norm
from truenorm.verify.norms.norm import Norm
from truenorm.verify.operations import LAYER_NORM, RMS_NORM
from truenorm.verify.types import Array, Float64s


class CutOff(Variant):
    """float32 becomes bfloat16 by leaving out the last 16 bits: y, or the sum before the norm."""

    def __init__(self, *, sums: bool) -> None:
        self.sums = sums

    def cast(self, values: Float64s, like: Array) -> Array:
        if self.sums or like.dtype != self.kinds["x"]:
            return super().cast(values, like)
        return cut(values).astype(like.dtype)

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        if not self.sums:
            return super().add(x, residual)
        total = cut(x.astype(np.float64) + residual.astype(np.float64)).astype(x.dtype)
        return total, total


class CutResult(CutOff):
    """The sum that is returned is cut off, and the rounded one is normalized."""

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        total, _ = Variant.add(self, x, residual)
        return total, super().add(x, residual)[1]


def cut(values: Float64s) -> Array:
    """Return float32 numbers whose last 16 bits are zero."""
    bits = to_24_bits(values).astype(np.float32).view(np.uint32)
    left: Array = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    return left


class OtherSum(Variant):
    """The sum that the operation does not say is normalized: the unrounded one, or the rounded."""

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        total = x + residual
        if self.operation.sum == "unrounded":
            return total, total
        return x.astype(np.float64) + residual.astype(np.float64), total


class OtherNorm(Variant):
    """The mean is subtracted where it should not be, or is not where it should."""

    def run_forward(self, *arguments: Any) -> Any:
        self.centred = not self.operation.centred
        return super().run_forward(*arguments)


add_rms = partial(plant, operation=ADD_RMS_NORM)
add_layer = partial(plant, operation=ADD_LAYER_NORM, dtype="float16")


def claimed(
    claim: str,
    kernel: Variant,
    name: str,
    operation: Norm,
    dtype: str = "bfloat16",
    *,
    bits: str = "",
    y: str = "stable",
) -> PlantedBug:
    """Return a bug whose y is near enough, and has other bits than it claims."""
    said = f"y is not rounded as {claim} requires: bits" + (f" of {bits} in 100" if bits else "")
    title = f"{name}, where {claim} is claimed"
    return plant(kernel, title, operation, dtype, recipe=claim, symptom=said, y=y)


def by(
    recipe: str, claim: str, operation: Norm, dtype: str = "bfloat16", y: str = "stable"
) -> PlantedBug:
    return claimed(claim, ByRecipe(recipe), recipe, operation, dtype, bits=recipe, y=y)


RECIPE_BUGS = [
    by("early", "late", RMS_NORM),
    by("late", "early", RMS_NORM, "float16", y="faithful"),
    by("early", "late", ADD_RMS_NORM),
    by("late", "early", ADD_RMS_NORM, y="faithful"),
    by("product", "late", LAYER_NORM, "float16"),
    by("apex", "late", LAYER_NORM),
    by("late", "apex", ADD_LAYER_NORM, "float16", y="faithful"),
    by("early", "weight-typed", WIDE_ZERO_CENTRED),
    by("gain-rounded", "late", ZERO_CENTRED),
    by("late", "gain-rounded", ZERO_CENTRED, y="faithful"),
    by("late", "none", RMS_NORM, y="faithful"),
    claimed("late", OtherSum(), "of the unrounded sum", ADD_RMS_NORM,
        bits="late, of the unrounded sum"),
    claimed("late", OtherSum(), "of the rounded sum", OF_THE_UNROUNDED,
        bits="late, of the rounded sum"),
    claimed("late", CutOff(sums=False), "y cut off", RMS_NORM, y="faithful"),
    claimed("late", CutOff(sums=True), "the sum cut off", ADD_RMS_NORM),
]  # fmt: skip

OTHER_NORMS = [
    add_rms(OtherNorm(), "layer norm handed in", y="wrong"),
    plant(OtherNorm(), "layer norm handed in", WIDE_ZERO_CENTRED, y="wrong"),
    plant(OtherNorm(), "RMSNorm handed in", LAYER_NORM, y="wrong"),
    add_layer(OtherNorm(), "RMSNorm handed in", y="wrong"),
]


class Adds(Variant):
    """What is normalized, or what is returned as the sum, is another array."""

    def __init__(
        self,
        of: Callable[[Array, Array], Array],
        *,
        normalized: bool = True,
        returned: bool = True,
    ) -> None:
        self.of, self.changes = of, (normalized, returned)

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        right, other = super().add(x, residual), self.of(x, residual)
        rows, total = (
            other if changes else each for changes, each in zip(self.changes, right, strict=True)
        )
        return rows, total


class ResidualTimesTheNorm(Variant):
    """The gradient of the sum is sent through the norm: (dsum + dy)*dnorm."""

    def run_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        dsum, call = others
        return super().run_backward(dy + dsum, np.zeros_like(dsum), call)


class DsumIgnored(Variant):
    """What arrives at the sum is not added to the gradients of some summands."""

    def __init__(self, *of: str) -> None:
        self.of = of

    def add_dsum(self, dx: Array, dsum: Array) -> tuple[Array, Array]:
        with_dsum = super().add_dsum(dx, dsum)
        at_x, at_residual = (
            dx if name in self.of else each
            for name, each in zip(("x", "residual"), with_dsum, strict=True)
        )
        return at_x, at_residual


class KeepsX(Variant):
    """Backward takes x for the row that was normalized."""

    def run_forward(self, *arguments: Any) -> Any:
        y, total, call = super().run_forward(*arguments)
        x = call.inputs["x"]
        saved = self.statistics(x, call.saved.gamma, call.saved.beta, arguments[-1])
        return y, total, SavedCall(saved, call.inputs)


class SumInItsPlace(Variant):
    """The sum is written over a summand, as kernels do that say so; this one does not."""

    def __init__(self, over: str) -> None:
        self.over = over

    def run_forward(self, *arguments: Any) -> Any:
        y, total, call = super().run_forward(*arguments)
        inputs = {name: np.copy(each) for name, each in call.inputs.items() if each is not None}
        call.inputs[self.over][...] = total
        return y, total, SavedCall(call.saved, {**call.inputs, **inputs})


def dx_over_dsum(
    results: tuple[Any, ...], _: Array, dsum: Array, __: SavedCall
) -> tuple[Any, ...]:
    dsum[...] = results[0]
    return results


class OneBuffer(Variant):
    """Sums of one shape share a buffer."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def run_forward(self, *arguments: Any) -> Any:
        y, total, call = super().run_forward(*arguments)
        buffer = self.buffers.setdefault(total.shape, np.empty_like(total))
        buffer[...] = total
        return y, buffer, call


def both(of: Callable[[Mapping[str, Any]], Any]) -> Changed:
    return Changed(dx=of, dresidual=of)


RESIDUAL_BUGS = [
    add_rms(ResidualTimesTheNorm(), "(dsum + dy)*dnorm", dx="wrong", dresidual="wrong"),
    add_rms(DsumIgnored("x", "residual"), "dsum ignored", dx="wrong", dresidual="wrong"),
    add_rms(both(lambda at: at["dx"] + at["dsum"]), "dsum twice", dx="wrong", dresidual="wrong"),
    add_rms(DsumIgnored("x"), "dsum at the residual only", dx="wrong"),
    add_layer(DsumIgnored("residual"), "dsum at x only", dresidual="wrong"),
    add_rms(Changed(dresidual=lambda at: at["dsum"]), "dresidual is dsum", dresidual="wrong"),
    add_rms(Changed(dresidual=lambda _: None), "no dresidual", verdict="runs"),
    add_rms(Changed(sum=lambda at: at["x"]), "x returned as the sum", sum="wrong"),
    add_layer(Changed(sum=lambda at: at["residual"]), "the residual returned as the sum",
        sum="wrong"),
    add_rms(Changed(sum=lambda at: at["y"]), "y returned as the sum", sum="wrong"),
    add_rms(Changed(sum=lambda at: at["sum"].astype(np.float32)), "the sum in float32",
        verdict="runs"),
    add_rms(Adds(lambda x, _: x, returned=False), "the norm of x, beside the sum", y="wrong"),
    add_layer(Adds(lambda _, residual: residual, returned=False), "the norm of the residual",
        y="wrong"),
    add_rms(Adds(lambda x, residual: x + residual + residual), "the residual added twice",
        y="wrong", sum="wrong"),
    add_layer(Adds(lambda x, residual: x - residual, normalized=False),
        "a difference returned as the sum", sum="wrong"),
    plant(Adds(lambda x, residual: x + residual.astype(np.float16).astype(x.dtype)),
        "the residual through float16", ADD_RMS_NORM, "float32", y="wrong", sum="wrong"),
    add_rms(KeepsX(), "gradients at x, not at the sum", dx="wrong", dgamma="wrong"),
    add_rms(SumInItsPlace("x"), "the sum over x", verdict="inputs kept"),
    add_rms(SumInItsPlace("residual"), "the sum over the residual", verdict="inputs kept"),
    add_rms(AlteredVariant(run_backward=dx_over_dsum), "dx over dsum", verdict="inputs kept"),
    plant(OneBuffer(), "sums in one buffer", OF_THE_UNROUNDED, verdict="results kept"),
    plant(as_variant(StaleForward), "gradients at the latest sum", OF_THE_UNROUNDED,
        verdict="own state"),
]  # fmt: skip


class OtherOffset(Variant):
    """Another number than that of the operation is added to gamma, in both passes or in one."""

    def __init__(self, offset: float, *, forward: bool = True) -> None:
        self.offset, self.changes_forward = offset, forward

    def other(self, saved: Saved) -> Float64s:
        declared = float(self.operation.gain == "zero-centred")
        return self.gamma(saved) + (self.offset - declared)

    def output(self, saved: Saved) -> Float64s:
        if not self.changes_forward:
            return super().output(saved)
        return self.other(saved) * self.xhat(saved) + self.beta(saved)

    def project(self, dy: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return super().project(dy, self.other(saved), xhat, saved)


class OtherBeta(Variant):
    """Beta is added so many times, or is multiplied by gamma as well."""

    def __init__(self, times: int, *, multiplied: bool = False) -> None:
        self.times, self.multiplied = times, multiplied

    def beta(self, saved: Saved) -> Float64s:
        beta = self.times * super().beta(saved)
        return beta * self.gamma(saved) if self.multiplied else beta


class DgammaOfBoth(Variant):
    """dgamma and dbeta are of dy + dsum, as if the sum came out of the norm too."""

    def run_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        dsum, call = others
        dx, dresidual, *_ = super().run_backward(dy, *others)
        *_, dgamma, dbeta = super().run_backward(dy + dsum, dsum, call)
        return dx, dresidual, dgamma, dbeta


class AddedUpIn16Bits(Variant):
    """dgamma is added up over rows in the type of x."""

    def over_rows(self, terms: Float64s) -> Float64s:
        total = np.zeros(terms.shape[1])
        for row in terms:
            total = rounded(total + row, self.kinds["x"])
        return total


class HalfOfTheRows(Variant):
    """The partial sums of every second block of four rows are not added."""

    def over_rows(self, terms: Float64s) -> Float64s:
        return super().over_rows(terms[np.arange(len(terms)) % 8 < 4])


PARAMETER_BUGS = [
    plant(OtherOffset(0), "gamma as it is", WIDE_ZERO_CENTRED, y="wrong"),
    plant(OtherOffset(1), "1 + gamma", RMS_NORM, y="wrong", dx="wrong"),
    plant(OtherOffset(0, forward=False), "the offset dropped in dx", WIDE_ZERO_CENTRED,
        dx="wrong"),
    plant(OtherOffset(2), "the offset added twice", WIDE_ZERO_CENTRED, y="wrong", dx="wrong"),
    plant(Changed(dgamma=lambda at: at["dgamma"] * (1 + at["gamma"])), "dgamma times 1 + gamma",
        WIDE_ZERO_CENTRED, dgamma="wrong"),
    add_rms(Changed(dgamma=lambda at: 0 * at["gamma"]), "dgamma never written", dgamma="wrong"),
    add_rms(Changed(dgamma=lambda _: None), "no dgamma", verdict="runs"),
    add_rms(AddedUpIn16Bits(), "dgamma added up in bfloat16"),
    add_rms(HalfOfTheRows(), "dgamma of half of the rows", dgamma="wrong"),
    add_layer(OtherBeta(0), "beta forgotten", y="wrong"),
    add_layer(OtherBeta(2), "beta added twice", y="wrong"),
    plant(OtherBeta(1, multiplied=True), "gamma*(xhat + beta)", LAYER_NORM, y="wrong"),
    add_layer(Changed(dbeta=lambda at: at["dbeta"] * at["gamma"]), "dbeta times gamma",
        dbeta="wrong"),
    add_layer(DgammaOfBoth(), "dgamma and dbeta of dy + dsum", dgamma="wrong", dbeta="wrong"),
    plant(
        # dbeta is not computed either.
        AlteredVariant(
            run_backward=lambda results, *arguments: (
                (*results[:2], None) if arguments[-1].inputs["gamma"] is None else results
            )
        ),
        "no dbeta without gamma",
        LAYER_NORM,
        also=["no-gamma"],
        verdict="runs",
    ),
]  # fmt: skip


class WeightsReadAsBfloat16(Variant):
    """The bytes of float32 weights are taken for bfloat16 numbers."""

    def gain(self, gamma: Array | None) -> Array | None:
        if gamma is None:
            return None
        return super().gain(gamma.view(BFLOAT16)[: len(gamma)])


class WeightsCastFirst(ByRecipe):
    """float32 weights are rounded to bfloat16 before they are used."""

    def gain(self, gamma: Array | None) -> Array | None:
        return super().gain(None if gamma is None else gamma.astype(BFLOAT16))


def root_in_bfloat16(saved: Saved, _: Saved) -> Saved:
    return replace(saved, rstd=rounded(saved.rstd, BFLOAT16))


class InverseRootInBfloat16(Variant):
    """1/sqrt(mean square + eps) is a bfloat16 number in the forward pass."""

    def output(self, saved: Saved) -> Float64s:
        return super().output(root_in_bfloat16(saved, saved))


class EpsDividedToo(Variant):
    """eps is added to the sum of the squares, and divided by D with them."""

    def rstd(self, variance: Float64s, eps: Any) -> Float64s:
        return super().rstd(variance, eps / self.size)

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        self.size = rows.shape[1]
        return super().variance(rows, centred)


def narrow(name: str) -> Changed:
    return Changed(**{name: lambda at: at[name].astype(BFLOAT16)})


OTHER_EPS, OUTSIDE = forward.OtherEps, forward.EpsOutsideTheRoot

TYPE_BUGS = [
    plant(WeightsReadAsBfloat16(), "weights read as bfloat16", WIDE_ZERO_CENTRED, y="wrong"),
    plant(WeightsCastFirst("late"), "weights cast to bfloat16 first", WIDE_ZERO_CENTRED,
        y="wrong"),
    plant(WeightsCastFirst("early"), "weights cast to bfloat16 first", LLAMA, recipe="early",
        symptom="y is not rounded as early requires", y="stable"),
    plant(narrow("y"), "y in bfloat16", LLAMA, verdict="runs"),
    plant(narrow("dgamma"), "dgamma in bfloat16", LLAMA, verdict="runs"),
    add_layer(AlteredVariant(to_save=root_in_bfloat16), "rstd saved in bfloat16"),
    plant(AlteredVariant(to_save=root_in_bfloat16), "rstd saved in bfloat16", ADD_RMS_NORM,
        "float32", dx="wrong", dgamma="wrong"),
    add_layer(AlteredVariant(variance=lambda right, *_: rounded(right, np.float16)),
        "mean squares in float16", y="wrong"),
    plant(InverseRootInBfloat16(), "inverse root in bfloat16", RMS_NORM, recipe="late",
        symptom="y is not rounded as late requires"),
    plant(InverseRootInBfloat16(), "bfloat16 root of float16", RMS_NORM, "float16", y="wrong"),
    add_rms(AlteredVariant(variance=lambda right, *_: 4 * right),
        "mean squares of shards added up", y="wrong"),
    add_rms(as_variant(OTHER_EPS, lambda _: 1e-6), "eps is 1e-6", y="wrong"),
    plant(as_variant(OTHER_EPS, lambda _: 2.0**-23), "eps is float32's", LAYER_NORM, y="wrong"),
    add_layer(as_variant(OUTSIDE), "eps outside the root", y="wrong"),
    add_rms(EpsDividedToo(), "eps divided by D", y="wrong"),
]  # fmt: skip


class PaddingIgnored(Variant):
    """x is read as if its rows followed each other without a gap."""

    def add(self, x: Array, residual: Array) -> tuple[Array, Array]:
        return super().add(read_contiguously(x), residual)


class GradientsWithoutGaps(Variant):
    """Gradients are read as if they were contiguous, whatever x is; or what arrives at the sum."""

    def __init__(self, *, dsum_only: bool) -> None:
        self.dsum_only = dsum_only

    def run_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        *gradients, call = others
        dy = dy if self.dsum_only else read_contiguously(dy)
        return super().run_backward(dy, *map(read_contiguously, gradients), call)


class LanesByBatch(Variant):
    """Squares are added up in float32 by so many lanes as the number of rows says."""

    def variance(self, rows: Float64s, centred: Float64s) -> Float64s:
        lanes = min(8 if len(rows) < 256 else 64, rows.shape[1])
        squares = (centred * centred).astype(np.float32)
        each = [one_by_one(squares[:, lane::lanes]) for lane in range(lanes)]
        mean: Float64s = one_by_one(np.concatenate(each, axis=1)) / np.float64(rows.shape[1])
        return mean


def one_by_one(terms: Array) -> Array:
    """Return sums in the type of their terms, from the first to the last, as a column."""
    sums: Array = np.add.accumulate(terms, axis=1)[:, -1:]
    return sums


def over_the_next_row(y: Float64s, _: Saved) -> Float64s:
    """Two elements are written at a time, from the last row to the first, also of an odd width."""
    if y.shape[-1] % 2:
        y[1:, 0] = y[:-1, -1]
    return y


class NotInitialized(Variant):
    """The last column of the last row holds what was there before: another number each time."""

    calls = 0

    def output(self, saved: Saved) -> Float64s:
        y = super().output(saved)
        self.calls += 1
        y[-1:, -1] = self.calls % 7
        return y


LAYOUT_BUGS = [
    add_rms(PaddingIgnored(), "rows of x without their gaps", also=["padded-rows"], y="wrong"),
    add_rms(GradientsWithoutGaps(dsum_only=True), "rows of dsum without their gaps",
        also=["padded-rows"], dx="wrong", dresidual="wrong"),
    plant(GradientsWithoutGaps(dsum_only=False), "strided gradients read as contiguous", RMS_NORM,
        also=["strides"], dx="wrong", dgamma="wrong"),
    add_layer(as_variant(StrideIgnored), "last-axis stride ignored", also=["strides"], dx="wrong"),
    add_rms(AlteredVariant(output=over_the_next_row), "the start of rows of odd width", y="wrong"),
    plant(as_variant(BlockByBatch), "blocks that switch at 256 rows", ADD_RMS_NORM, "float32",
        verdict="batch-invariant"),
    plant(LanesByBatch(), "lanes that switch at 256 rows", RMS_NORM, verdict="batch-invariant"),
    add_layer(LanesByBatch(), "lanes that switch at 256 rows", verdict="batch-invariant"),
    add_rms(NotInitialized(), "garbage of each run", y="wrong", verdict="repeatable"),
    plant(
        # One row writes one of two partial sums.
        AlteredVariant(dgamma=lambda right, dy, *_: right + 1e20 * (len(dy) == 1)),
        "dgamma of one row",
        ADD_RMS_NORM,
        dgamma="unstable",
    ),
]  # fmt: skip


def two_least_scales(amax: Array) -> Array:
    """Divide by qmax, with another least scale for a smaller amax."""
    least = np.where(amax < 1e-15, 2.0**-23, 1 / (448 * 512))
    return np.maximum(amax / np.float32(448), least.astype(np.float32))


OF_CODES = "rms_norm,quant=e4m3fn,scale=per-token"
ROUNDING_RULES = [
    add_rms(CutResult(sums=True), "the returned sum cut off", symptom="not rounded to nearest"),
    PlantedBug(
        QuantizedKernel(quantized_norm(OF_CODES), scale=two_least_scales).subject(
            name=f"{OF_CODES}: two least scales"
        ),
        {},
        "",
        "follows several rules",
    ),
]
VARIANTS = [
    *(*RECIPE_BUGS, *OTHER_NORMS, *RESIDUAL_BUGS, *PARAMETER_BUGS, *TYPE_BUGS, *LAYOUT_BUGS),
    *ROUNDING_RULES,
]
