"""Planted bugs of gains and betas: how they are applied, and their gradients."""

from typing import Any

import numpy as np

from truenorm.verify.operations import LAYER_NORM, RMS_NORM
from truenorm.verify.types import Array, Float64s
from verify.planted.base import Saved
from verify.planted.relatives.kernel import Changed, Relative, plant, rounded
from verify.planted.relatives.shipped import ADD_LAYER_NORM, ADD_RMS_NORM, WIDE_ZERO_CENTRED


class OtherOffset(Relative):
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

    def project(self, slopes: Float64s, gamma: Float64s, xhat: Float64s, saved: Saved) -> Float64s:  # noqa: ARG002
        return super().project(slopes, self.other(saved), xhat, saved)


class OtherBeta(Relative):
    """Beta is added so many times, or is multiplied by gamma as well."""

    def __init__(self, times: int, *, multiplied: bool = False) -> None:
        self.times, self.multiplied = times, multiplied

    def beta(self, saved: Saved) -> Float64s:
        beta = self.times * super().beta(saved)
        return beta * self.gamma(saved) if self.multiplied else beta


class DgammaOfBoth(Relative):
    """dgamma and dbeta are of dy + dsum, as if the sum came out of the norm too."""

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        dsum, kept = others
        dx, dresidual, *_ = super().passed_backward(dy, *others)
        *_, dgamma, dbeta = super().passed_backward(dy + dsum, dsum, kept)
        return dx, dresidual, dgamma, dbeta


class AddedUpIn16Bits(Relative):
    """dgamma is added up over rows in the type of x."""

    def over_rows(self, terms: Float64s) -> Float64s:
        total = np.zeros(terms.shape[1])
        for row in terms:
            total = rounded(total + row, self.kinds["x"])
        return total


class HalfOfTheRows(Relative):
    """The partial sums of every second block of four rows are not added."""

    def over_rows(self, terms: Float64s) -> Float64s:
        return super().over_rows(terms[np.arange(len(terms)) % 8 < 4])


class NoGradientWithoutGamma(Relative):
    """Where there is no gamma, dbeta is not computed either."""

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        dx, dgamma, dbeta = super().passed_backward(dy, *others)
        return dx, dgamma, None if others[-1].inputs["gamma"] is None else dbeta


PARAMETERS = [
    plant(OtherOffset(0), "gamma as it is", WIDE_ZERO_CENTRED, y="wrong"),
    plant(OtherOffset(1), "1 + gamma", RMS_NORM, y="wrong", dx="wrong"),
    plant(
        OtherOffset(0, forward=False), "the offset dropped in dx", WIDE_ZERO_CENTRED, dx="wrong"
    ),
    plant(OtherOffset(2), "the offset added twice", WIDE_ZERO_CENTRED, y="wrong", dx="wrong"),
    plant(
        Changed(dgamma=lambda at: at["dgamma"] * (1 + at["gamma"])),
        "dgamma times 1 + gamma",
        WIDE_ZERO_CENTRED,
        dgamma="wrong",
    ),
    plant(
        Changed(dgamma=lambda at: 0 * at["gamma"]),
        "dgamma never written",
        ADD_RMS_NORM,
        dgamma="wrong",
    ),
    plant(Changed(dgamma=lambda _: None), "no dgamma", ADD_RMS_NORM, verdict="runs"),
    plant(AddedUpIn16Bits(), "dgamma added up in bfloat16", ADD_RMS_NORM),
    plant(HalfOfTheRows(), "dgamma of half of the rows", ADD_RMS_NORM, dgamma="wrong"),
    plant(OtherBeta(0), "beta forgotten", ADD_LAYER_NORM, "float16", y="wrong"),
    plant(OtherBeta(2), "beta added twice", ADD_LAYER_NORM, "float16", y="wrong"),
    plant(OtherBeta(1, multiplied=True), "gamma*(xhat + beta)", LAYER_NORM, y="wrong"),
    plant(
        Changed(dbeta=lambda at: at["dbeta"] * at["gamma"]),
        "dbeta times gamma",
        ADD_LAYER_NORM,
        "float16",
        dbeta="wrong",
    ),
    plant(
        DgammaOfBoth(),
        "dgamma and dbeta of dy + dsum",
        ADD_LAYER_NORM,
        "float16",
        dgamma="wrong",
        dbeta="wrong",
    ),
    plant(
        NoGradientWithoutGamma(),
        "no dbeta without gamma",
        LAYER_NORM,
        also=["no-gamma"],
        verdict="runs",
    ),
]
