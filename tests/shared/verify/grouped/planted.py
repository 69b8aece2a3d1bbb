"""Bugs of grouped, gated and modulated kernels: one step is wrong.

`causes.toml` has the words of each cause that is named, and the source of the bug.
"""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from shared.verify.grouped.kernels import Array, Textbook
from truenorm.verify.operations import parse_operation
from truenorm.verify.subject import Subject

BFLOAT16: Any = ml_dtypes.bfloat16
GROUP_NORM, GROUPED = "group_norm,groups=2", "rms_norm,groups=4"
SILU, SILU_FIRST = "rms_norm,gate=silu", "rms_norm,groups=2,gate=silu-first"
SIGMOID, HEADS = "rms_norm,gate=sigmoid", "rms_norm,heads=4"
BY_SAMPLE, BY_ROW = "layer_norm,modulate=sample,gamma=false", "rms_norm,modulate=row"
OVER_CHANNELS = "layer_norm,over=channels"
PARTIAL, GATED_GROUPS = "rms_norm,variance=3/4", "rms_norm,groups=4,gate=silu"
At = dict[str, Any]


grouped = parse_operation


def to_bfloat16(array: Array) -> Array:
    return np.asarray(array.astype(BFLOAT16).astype(np.float64))


class OneGroup(Textbook):
    def units(self, x: Array) -> Array:
        return x.reshape(len(x), 1, -1)


class OneGroupBackward(Textbook):
    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        every = [each.reshape(len(g), 1, -1) for each in (g, xhat)]
        return super().means(*every)


class TwiceTheGroups(Textbook):
    def normalized(self, u: Array, eps: float, at: At) -> Array:
        right = super().normalized(u, eps, at)
        groups = 2 * self.norm.groups
        if u.shape[1] % groups:
            return right
        cut = u.reshape(len(u), groups, -1)
        c = cut - cut.mean(-1, keepdims=True)
        xhat = c / np.sqrt((c * c).mean(-1, keepdims=True) + eps)
        return np.asarray(xhat.reshape(right.shape))


class OtherGroupOfGamma(Textbook):
    def terms(self, dy: Array, e: Array, at: At) -> Array:  # noqa: ARG002 (of the interface)
        channels, groups = at["shape"][1], self.norm.groups
        group = np.arange(channels) % groups
        mean, r = (at[name].reshape(-1, groups)[:, group, np.newaxis] for name in ("mean", "r"))
        x = at["u"].reshape(len(mean), channels, -1)
        return np.asarray(e * ((x - mean) * r).reshape(e.shape))


class PartOfAChannel(Textbook):
    def columns(self, terms: Array) -> Array:
        return super().columns(terms[..., : max(1, terms.shape[-1] // 2)])


class NextGroupInPadding(Textbook):
    """A block of a power of two channels, masked by C and not by the group."""

    def variance(self, cut: Array, mean: Array) -> Array:
        size = cut.shape[-1]
        block = 1 << (size - 1).bit_length()
        total = ((cut - mean) ** 2).sum(-1, keepdims=True)
        over = cut[:, 1:, : block - size] - mean[:, :-1]
        total[:, :-1] += (over**2).sum(-1, keepdims=True)
        return np.asarray(total / size)


class OnePass(Textbook):
    def variance(self, cut: Array, mean: Array) -> Array:
        narrow, center = cut.astype(np.float32), mean.astype(np.float32)
        square = (narrow * narrow).mean(-1, keepdims=True) - center * center
        return np.asarray(square.astype(np.float64))


class OneForNoVariance(Textbook):
    def rstd(self, variance: Array, eps: Array, size: int) -> Array:
        return np.where(variance <= 0, 1.0, super().rstd(variance, eps, size))


class MomentsInBfloat16(Textbook):
    def mean(self, cut: Array) -> Array:
        mean = cut.astype(BFLOAT16).mean(-1, keepdims=True)
        return np.asarray(mean.astype(np.float64))


class StatisticsSavedInBfloat16(Textbook):
    def save(self, at: At) -> None:
        mean, r = to_bfloat16(at["mean"]), to_bfloat16(at["r"])
        at["xhat"], at["r"] = (self.units(at["u"]) - mean) * r, r


class OneLess(Textbook):
    def variance(self, cut: Array, mean: Array) -> Array:
        size = cut.shape[-1]
        return np.asarray(super().variance(cut, mean) * (size / max(1, size - 1)))


class ColumnsInBfloat16(Textbook):
    def columns(self, terms: Array) -> Array:
        rows = terms.reshape(*terms.shape[:2], -1).sum(-1)
        total = np.zeros(rows.shape[1])
        for row in rows:
            total = to_bfloat16(total + to_bfloat16(row))
        return total


class VarianceInFloat16(Textbook):
    def variance(self, cut: Array, mean: Array) -> Array:
        square = (cut - mean).astype(np.float16) ** 2
        return super().variance(np.sqrt(square.astype(np.float64)), np.zeros(1))


class GammaByGroup(Textbook):
    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        size = len(values) // self.norm.groups
        return super().per_element(np.repeat(values[::size], size), shape)


class ChannelsLast(Textbook):
    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        row = values[np.arange(np.prod(shape[1:])) % len(values)]
        return np.asarray(np.broadcast_to(row.reshape(shape[1:]), shape))


class GammaRolled(Textbook):
    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        return super().per_element(np.roll(values, 1), shape)


class SlopeWithoutItsSecondTerm(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        sigma = 1 / (1 + np.exp(-z))
        return z * sigma, sigma


class GateGradientOfTheGated(Textbook):
    def gate_gradient(self, dy: Array, at: At) -> Array:
        return np.asarray(super().gate_gradient(dy, at) * at["s"])


class GateGradientAsInputGradient(Textbook):
    def returned(self, gradients: list[Array]) -> list[Array]:
        return [gradients[1], *gradients[1:]]


class GammaOfDy(Textbook):
    def terms(self, dy: Array, e: Array, at: At) -> Array:  # noqa: ARG002 (of the interface)
        return super().terms(dy, dy, at)


class ExpOverflows(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        power = np.exp(z.astype(np.float32))
        sigma = (power / (1 + power)).astype(np.float64)
        if self.norm.activation == "sigmoid":
            return sigma, sigma * (1 - sigma)
        return z * sigma, sigma * (1 + z * (1 - sigma))


class ExpOverflowsIfFinite(ExpOverflows):
    """An infinite z is right: only gates above 88.7 show the overflow."""

    def gate(self, z: Array) -> tuple[Array, Array]:
        finite = np.isfinite(z)
        pairs = zip(super().gate(z), Textbook.gate(self, z), strict=True)
        s, slope = (np.where(finite, wrong, right) for wrong, right in pairs)
        return s, slope


class GateInBfloat16(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        s, slope = super().gate(z)
        return to_bfloat16(s), slope


class NotRounded(Textbook):
    def narrow(self, array: Array, kind: Any) -> Array:  # noqa: ARG002 (of the interface)
        return np.asarray(array.astype(np.float32))


class EpsOfTheSum(Textbook):
    def rstd(self, variance: Array, eps: Array, size: int) -> Array:
        return super().rstd(variance, eps / size, size)


class ScaleWithoutOne(Textbook):
    def modulated(self, n: Array, at: At) -> Array:
        at["scale"] = at["scale"] - 1
        return super().modulated(n, at)


class FirstSample(Textbook):
    def modulation(self, values: Array, shape: tuple[int, ...]) -> Array:
        return super().modulation(np.broadcast_to(values[:1], values.shape), shape)


class ScaleAndShiftExchanged(Textbook):
    def modulated(self, n: Array, at: At) -> Array:
        at["scale"], at["shift"] = at["shift"], at["scale"]
        return super().modulated(n, at)


class ModulationInBfloat16(Textbook):
    def modulation(self, values: Array, shape: tuple[int, ...]) -> Array:
        return super().modulation(to_bfloat16(values), shape)


class ChunkStridesIgnored(Textbook):
    def widen(self, array: Array) -> Array:
        if array.ndim == 2 and array.strides[0] > array.shape[1] * array.itemsize > 0:
            step = array.shape[1] * array.itemsize, array.itemsize
            array = np.lib.stride_tricks.as_strided(array, array.shape, step)
        return super().widen(array)


class OneUnitOfScale(Textbook):
    def row_sums(self, terms: Array) -> Array:
        return np.asarray(terms[:, -1])


class RowSumsInBfloat16(Textbook):
    def row_sums(self, terms: Array) -> Array:
        total = np.zeros((len(terms), terms.shape[2]))
        for unit in range(terms.shape[1]):
            total = to_bfloat16(total + to_bfloat16(terms[:, unit]))
        return total


class GateLanesOfTheNextRow(Textbook):
    """Lanes beyond D hold the next row of z, and x is 1 there."""

    def normalized(self, u: Array, eps: float, at: At) -> Array:
        self.lanes = np.roll(self.units(at["s"]), -1, axis=0)
        return super().normalized(u, eps, at)

    def variance(self, cut: Array, mean: Array) -> Array:
        size = cut.shape[-1]
        over = self.lanes[..., : (1 << (size - 1).bit_length()) - size]
        return np.asarray(super().variance(cut, mean) + (over**2).sum(-1, keepdims=True) / size)


class GammaOfTheFirstGroup(Textbook):
    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        groups = self.norm.groups
        return super().per_element(np.tile(values[: len(values) // groups], groups), shape)


class GateOfTheFirstGroup(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        return super().gate(np.tile(z[:, : z.shape[1] // self.norm.groups], self.norm.groups))


class Interleaved(Textbook):
    def units(self, x: Array) -> Array:
        groups = self.norm.groups
        cut = x.reshape(len(x), x.shape[1] // groups, groups, -1)
        return cut.swapaxes(1, 2).reshape(len(x), groups, -1)

    def back(self, units: Array, shape: tuple[int, ...]) -> Array:
        cut = units.reshape(*units.shape[:2], shape[1] // units.shape[1], -1)
        return cut.swapaxes(1, 2).reshape(shape)


class LastHead(Textbook):
    def columns(self, terms: Array) -> Array:
        return super().columns(terms[:, -1:])


class FirstHead(Textbook):
    def columns(self, terms: Array) -> Array:
        return super().columns(terms[:, :1])


class OtherSamples(Textbook):
    def modulation(self, values: Array, shape: tuple[int, ...]) -> Array:
        sample = np.arange(shape[0] * shape[1]) % shape[0]
        return values[sample].reshape(shape)


class ScaleWithoutGamma(Textbook):
    def save(self, at: At) -> None:
        at["n"] = self.back(at["xhat"], at["shape"])


class GammaOfTheUngated(Textbook):
    def terms(self, dy: Array, e: Array, at: At) -> Array:  # noqa: ARG002 (of the interface)
        return np.asarray(e * self.back(self.units(at["u"]) * at["r"], at["shape"]))


class DividedByAllColumns(Textbook):
    def variance(self, cut: Array, mean: Array) -> Array:
        size = cut.shape[-1]
        return np.asarray(super().variance(cut, mean) * (self.norm.counted(size) / size))


class AllColumnsOfBackward(Textbook):
    def input_gradient(self, g: Array, at: At) -> Array:
        _, along = self.means(g, at["xhat"])
        return np.asarray(at["r"] * (g - at["xhat"] * along))


class ResidualNotInVariance(Textbook):
    def normalized(self, u: Array, eps: float, at: At) -> Array:
        super().normalized(at["x"], eps, at)
        return np.asarray(self.units(u) * at["r"])


class SlopeAtXhat(Textbook):
    def save(self, at: At) -> None:
        _, at["slope"] = self.gate(self.back(at["xhat"], at["shape"]))


class TailLeftOut(Textbook):
    """A loop over whole blocks of 64; a shorter unit is one block."""

    def normalized(self, u: Array, eps: float, at: At) -> Array:
        cut = self.units(u)
        size = cut.shape[-1]
        blocks = cut[..., : size - size % 64 or size]
        at["mean"] = blocks.sum(-1, keepdims=True) / size
        variance = ((blocks - at["mean"]) ** 2).sum(-1, keepdims=True) / size
        at["r"] = 1 / np.sqrt(variance + eps)
        return np.asarray((cut - at["mean"]) * at["r"])


class OfChannels(Textbook):
    """Statistics along the last axis, the places of a channel, as np.mean(x, -1) takes them."""

    def statistics(self, u: Array) -> tuple[Array, Array]:
        """Return the mean and the variance of each channel, for each element of a group."""
        channels = u.reshape(*u.shape[:2], -1)
        of_each = channels.mean(-1, keepdims=True), channels.var(-1, keepdims=True)
        units = self.units(u).shape
        mean, variance = (np.broadcast_to(one, channels.shape).reshape(units) for one in of_each)
        return mean, variance

    def normalized(self, u: Array, eps: float, at: At) -> Array:
        at["mean"], variance = self.statistics(u)
        at["r"] = 1 / np.sqrt(variance + eps)
        return np.asarray((self.units(u) - at["mean"]) * at["r"])


class MeanOfChannels(OfChannels):
    """The variance is right."""

    def statistics(self, u: Array) -> tuple[Array, Array]:
        return super().statistics(u)[0], self.units(u).var(-1, keepdims=True)


class VarianceOfChannels(OfChannels):
    """The mean is right."""

    def statistics(self, u: Array) -> tuple[Array, Array]:
        return self.units(u).mean(-1, keepdims=True), super().statistics(u)[1]


class MeanOverPlaces(Textbook):
    """The mean of a channel, where channels are to be normalized at each place."""

    def normalized(self, u: Array, eps: float, at: At) -> Array:
        cut = self.units(u)
        at["mean"] = cut.mean(1, keepdims=True)
        at["r"] = 1 / np.sqrt(((cut - at["mean"]) ** 2).mean(-1, keepdims=True) + eps)
        return np.asarray((cut - at["mean"]) * at["r"])


class MeansOverPlacesInBackward(Textbook):
    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        return g.mean(1, keepdims=True), (g * xhat).mean(1, keepdims=True)


class Planted(NamedTuple):
    """A bug: the kernel, what it is judged as, and what it computes if that is another norm."""

    name: str
    kernel: type[Textbook]
    spec: str
    dtype: str = "float32"
    computes: str = ""
    also: tuple[str, ...] = ()

    @property
    def subject(self) -> Subject:
        kernel, norm = self.kernel(grouped(self.computes or self.spec)), grouped(self.spec)
        claims = {"operation": norm, "also": self.also}
        return kernel.subject(self.dtype, self.name, **claims)


PLANTED = (
    Planted("groups ignored", OneGroup, GROUP_NORM),
    Planted("groups ignored in backward", OneGroupBackward, GROUPED),
    Planted("twice the groups", TwiceTheGroups, GROUP_NORM),
    Planted("dgamma of group c % G", OtherGroupOfGamma, GROUP_NORM),
    Planted("sums over part of a channel", PartOfAChannel, GROUP_NORM),
    Planted("padding lanes of the next group", NextGroupInPadding, GROUP_NORM),
    Planted("one pass", OnePass, GROUP_NORM),
    Planted("rstd is 1 where var is 0", OneForNoVariance, GROUP_NORM),
    Planted("mean in bfloat16", MomentsInBfloat16, GROUP_NORM, "bfloat16"),
    Planted("saved in bfloat16", StatisticsSavedInBfloat16, GROUP_NORM, "bfloat16"),
    Planted("n - 1", OneLess, GROUP_NORM),
    Planted("dgamma in bfloat16", ColumnsInBfloat16, GROUP_NORM, "bfloat16"),
    Planted("variance in float16", VarianceInFloat16, GROUP_NORM, "float16"),
    Planted("gamma by group", GammaByGroup, GROUP_NORM),
    Planted("channel is offset % C", ChannelsLast, GROUP_NORM),
    Planted("gamma rolled", GammaRolled, GROUP_NORM),
    Planted("gate first", Textbook, SILU, computes="rms_norm,gate=silu-first"),
    Planted("gate after", Textbook, SILU_FIRST, computes="rms_norm,groups=2,gate=silu"),
    Planted("gated, groups ignored", OneGroup, SILU_FIRST),
    Planted("sigmoid for silu", Textbook, SILU, computes=SIGMOID),
    Planted("silu for sigmoid", Textbook, SIGMOID, computes=SILU),
    Planted("slope is sigma", SlopeWithoutItsSecondTerm, SILU),
    Planted("dz from the gated y", GateGradientOfTheGated, SILU),
    Planted("dz returned as dx", GateGradientAsInputGradient, SILU),
    Planted("dgamma without gate", GammaOfDy, SILU),
    Planted("exp overflows", ExpOverflows, SILU),
    Planted("exp overflows, float16", ExpOverflowsIfFinite, SIGMOID, "float16"),
    Planted("exp of the norm overflows, float16", ExpOverflowsIfFinite, "rms_norm,gate=self",
        "float16"),
    Planted("gate in bfloat16", GateInBfloat16, SILU),
    Planted("float32 for bfloat16", NotRounded, SILU, "bfloat16"),
    Planted("eps on the sum", EpsOfTheSum, SILU),
    Planted("scale without 1", ScaleWithoutOne, BY_SAMPLE),
    Planted("sample 0 for all", FirstSample, BY_SAMPLE),
    Planted("scale and shift exchanged", ScaleAndShiftExchanged, BY_ROW),
    Planted("modulation in bfloat16", ModulationInBfloat16, BY_ROW),
    Planted("chunk strides ignored", ChunkStridesIgnored, BY_ROW, also=("padded-rows",)),
    Planted("dscale not summed", OneUnitOfScale, BY_SAMPLE),
    Planted("dscale in bfloat16", RowSumsInBfloat16, BY_SAMPLE, "bfloat16"),
    Planted("gate lanes of the next row", GateLanesOfTheNextRow, SILU_FIRST),
    Planted("variance over all columns", Textbook, PARTIAL, computes="rms_norm"),
    Planted("QK-norm over all heads", OneGroup, HEADS),
    Planted("gamma of group 0", GammaOfTheFirstGroup, GROUP_NORM),
    Planted("z of group 0", GateOfTheFirstGroup, GATED_GROUPS),
    Planted("interleaved groups", Interleaved, GROUP_NORM),
    Planted("last head", LastHead, HEADS),
    Planted("first head", FirstHead, HEADS),
    Planted("sample row % N", OtherSamples, BY_SAMPLE),
    Planted("dgamma without scale", GammaOfDy, BY_ROW),
    Planted("dscale without gamma", ScaleWithoutGamma, "layer_norm,modulate=sample"),
    Planted("dgamma of the ungated x", GammaOfTheUngated, SILU_FIRST),
    Planted("partial variance over D", DividedByAllColumns, PARTIAL),
    Planted("dx of all columns", AllColumnsOfBackward, PARTIAL),
    Planted("residual not in r", ResidualNotInVariance, "add_rms_norm,heads=4"),
    Planted("slope at xhat", SlopeAtXhat, "group_norm,groups=2,gate=self"),
    Planted("group of one channel", OfChannels, GROUP_NORM),
    Planted("mean of a channel", MeanOfChannels, GROUP_NORM),
    Planted("variance of a channel", VarianceOfChannels, GROUP_NORM),
    Planted("mean over places", MeanOverPlaces, OVER_CHANNELS),
    Planted("means over places in backward", MeansOverPlacesInBackward, OVER_CHANNELS),
    Planted("tail of a block", TailLeftOut, GROUP_NORM),
)  # fmt: skip
CAUSES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("causes.toml").read_text("utf-8")
)
"""By bug: ids of which each finding with a cause has one; none where no cause is named."""
