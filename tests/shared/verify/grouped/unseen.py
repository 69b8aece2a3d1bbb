"""Wrong kernels of grouped norms, written without knowledge of the hypotheses, and their causes.

A result without an entry gets no cause. The causes are true: if one changes, compare it with the
kernel.
"""

from typing import Any, NamedTuple

import numpy as np

from shared.verify.grouped.kernels import Array, Textbook

At = dict[str, Any]


class GammaSquared(Textbook):
    def per_element(self, values: Array, shape: tuple[int, ...]) -> Array:
        return super().per_element(values * values, shape)


class MeanNotInDx(Textbook):
    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        mean, along = super().means(g, xhat)
        return 0 * mean, along


class ProjectedTwice(Textbook):
    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        mean, along = super().means(g, xhat)
        return mean, 2 * along


class MeanOfFirstHalf(Textbook):
    def mean(self, cut: Array) -> Array:
        return np.asarray(cut[..., : max(1, cut.shape[-1] // 2)].mean(-1, keepdims=True))


class UnitBefore(Textbook):
    def rstd(self, variance: Array, eps: Array, size: int) -> Array:
        return np.roll(super().rstd(variance, eps, size), 1, axis=1)


class NoBeta(Textbook):
    def gain(self, xhat: Array, at: At) -> Array:
        return super().gain(xhat, {name: each for name, each in at.items() if name != "beta"})


class NoGain(Textbook):
    def gain(self, xhat: Array, at: At) -> Array:
        super().gain(xhat, at)
        return xhat


class Tanh(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        tanh = np.tanh(z)
        return tanh, 1 - tanh * tanh


class OtherSign(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        s, slope = super().gate(-z)
        return s, -slope


class HardSwish(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        s = np.clip(z / 6 + 0.5, 0, 1)
        return z * s, s + z * (np.abs(z) < 3) / 6


class ShiftTwice(Textbook):
    def modulated(self, n: Array, at: At) -> Array:
        return super().modulated(n, at) + self.modulation(at["shift"], at["shape"])


class ScaledAfterShift(Textbook):
    def modulated(self, n: Array, at: At) -> Array:
        at["factor"] = 1 + self.modulation(at["scale"], at["shape"])
        return np.asarray((n + self.modulation(at["shift"], at["shape"])) * at["factor"])


class DxWithoutGamma(Textbook):
    def input_gradient(self, g: Array, at: At) -> Array:
        return super().input_gradient(g / self.units(at["gain"]), at)


class DgammaFromX(Textbook):
    def terms(self, dy: Array, e: Array, at: At) -> Array:  # noqa: ARG002 (of the interface)
        return np.asarray(e * at["u"])


class EpsSquared(Textbook):
    def rstd(self, variance: Array, eps: Array, size: int) -> Array:
        return super().rstd(variance, eps * eps, size)


class EpsBesideTheRoot(Textbook):
    def rstd(self, variance: Array, eps: Array, size: int) -> Array:  # noqa: ARG002 (of the interface)
        return np.asarray(1 / (np.sqrt(variance) + eps))


class FirstUnitOfScale(Textbook):
    def row_sums(self, terms: Array) -> Array:
        return np.asarray(terms[:, 0])


class XhatInFloat16(Textbook):
    def gain(self, xhat: Array, at: At) -> Array:
        return super().gain(xhat.astype(np.float16).astype(self.wide), at)


class HalfOfDz(Textbook):
    def gate_gradient(self, dy: Array, at: At) -> Array:
        return 0.5 * super().gate_gradient(dy, at)


class MeanOverRows(Textbook):
    def columns(self, terms: Array) -> Array:
        return super().columns(terms) / len(terms)


class RowsReversed(Textbook):
    def forward(self, *arguments: Any) -> Any:
        y, saved = super().forward(*arguments)
        return y[::-1].copy(), saved


class SquaresInFloat16(Textbook):
    def variance(self, cut: Array, mean: Array) -> Array:
        c = (cut - mean).astype(np.float16)
        return np.asarray((c * c).astype(np.float64).mean(-1, keepdims=True))


class OneLessInBackward(Textbook):
    def means(self, g: Array, xhat: Array) -> tuple[Array, Array]:
        mean, along = super().means(g, xhat)
        more = g.shape[-1] / max(1, g.shape[-1] - 1)
        return mean * more, along * more


class SlopeOfSigmoid(Textbook):
    def gate(self, z: Array) -> tuple[Array, Array]:
        sigma = 1 / (1 + np.exp(-z))
        return super().gate(z)[0], sigma * (1 - sigma)


class Unseen(NamedTuple):
    """A wrong kernel, what it is judged as, and by result the id of the cause that it gets."""

    kernel: type[Textbook]
    spec: str
    causes: dict[str, str]


GROUP_NORM, GROUPED, SILU = "group_norm,groups=2", "rms_norm,groups=4", "rms_norm,gate=silu"
FIRST, DIT = "rms_norm,groups=2,gate=silu-first", "layer_norm,modulate=sample,gamma=false"
UNSEEN = (
    Unseen(GammaSquared, GROUP_NORM, {"dx": "factor-twice(gamma, g)"}),  # and beta in y
    Unseen(MeanNotInDx, GROUP_NORM, {"dx": "no-term(mean(g))"}),
    Unseen(ProjectedTwice, GROUPED, {"dx": "term-twice(xhat*mean(g*xhat))"}),
    Unseen(MeanOfFirstHalf, GROUP_NORM,
        dict.fromkeys(("y", "dgamma"), "no-second-half(the mean, element)-not-counted")),
    Unseen(UnitBefore, GROUPED,
        dict.fromkeys(("y", "dx", "dgamma"), "of-before(1/sqrt(... + eps), group)")),
    Unseen(NoBeta, GROUP_NORM, {"y": "no-term(beta)"}),
    Unseen(NoGain, SILU, dict.fromkeys(("y", "dz"), "no-factor(gamma, xhat*gamma)")),
    Unseen(Tanh, SILU, {}),
    Unseen(OtherSign, SILU, {}),
    Unseen(HardSwish, SILU,
        dict.fromkeys(("y", "dx", "dgamma"), "hard-sigmoid-6(sigma(z))")),
    Unseen(ShiftTwice, DIT, {"y": "term-twice(shift)"}),
    Unseen(ScaledAfterShift, "rms_norm,modulate=row",
        {"y": "term-multiplied(shift, 1 + scale, m)"}),
    Unseen(DxWithoutGamma, SILU, {"dx": "no-factor(gamma, g)"}),
    Unseen(DgammaFromX, GROUP_NORM, {"dgamma": "used-for(x, xhat, dy*xhat)"}),
    Unseen(EpsSquared, GROUP_NORM, {}),
    Unseen(EpsBesideTheRoot, "instance_norm",
        dict.fromkeys(("y", "dx"), "added-to-root(eps)")),
    Unseen(FirstUnitOfScale, DIT,
        dict.fromkeys(("dscale", "dshift"), "first-alone(row of a sample)")),
    Unseen(XhatInFloat16, "rms_norm,heads=4", {"y": "rounded(xhat, float16)"}),
    Unseen(HalfOfDz, SILU, {"dz": "times-a-factor"}),
    Unseen(MeanOverRows, SILU, {}),
    Unseen(RowsReversed, GROUP_NORM, {}),
    Unseen(SquaresInFloat16, GROUP_NORM, {}),
    Unseen(OneLessInBackward, "layer_norm,groups=2",
        {"dx": "divided-by(mean(g), mean(g*xhat), n - 1)"}),
    Unseen(SlopeOfSigmoid, "rms_norm,gate=self", {}),
    Unseen(Tanh, FIRST, {}),
    Unseen(OtherSign, FIRST, {}),
)  # fmt: skip
