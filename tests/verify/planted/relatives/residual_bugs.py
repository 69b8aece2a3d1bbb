"""Planted bugs of a residual that is added: the sum, what is normalized, and their gradients."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from truenorm.verify.types import Array
from verify.planted.base import Results
from verify.planted.relatives.kernel import Changed, Kept, Relative, plant
from verify.planted.relatives.shipped import ADD_LAYER_NORM, ADD_RMS_NORM, OF_THE_UNROUNDED


class Adds(Relative):
    """What is normalized, or what is returned as the sum, is another array."""

    def __init__(
        self,
        of: Callable[[Array, Array], Array],
        *,
        normalized: bool = True,
        returned: bool = True,
    ) -> None:
        self.of, self.changes = of, (normalized, returned)

    def added(self, x: Array, residual: Array) -> tuple[Array, Array]:
        right, other = super().added(x, residual), self.of(x, residual)
        rows, total = (
            other if changes else each for changes, each in zip(self.changes, right, strict=True)
        )
        return rows, total


class ResidualTimesTheNorm(Relative):
    """The gradient of the sum is sent through the norm: (dsum + dy)*dnorm."""

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        dsum, kept = others
        return super().passed_backward(dy + dsum, np.zeros_like(dsum), kept)


class DsumIgnored(Relative):
    """What arrives at the sum is not added to the gradients of some summands."""

    def __init__(self, *of: str) -> None:
        self.of = of

    def arriving(self, dx: Array, dsum: Array) -> tuple[Array, Array]:
        with_dsum = super().arriving(dx, dsum)
        at_x, at_residual = (
            dx if name in self.of else each
            for name, each in zip(("x", "residual"), with_dsum, strict=True)
        )
        return at_x, at_residual


class KeepsX(Relative):
    """Backward takes x for the row that was normalized."""

    def passed_forward(self, *given: Any) -> Any:
        y, total, kept = super().passed_forward(*given)
        x = kept.inputs["x"]
        saved = self.statistics(x, kept.saved.gamma, kept.saved.beta, given[-1])
        return y, total, Kept(saved, kept.inputs)


class SumInItsPlace(Relative):
    """The sum is written over a summand, as kernels do that say so; this one does not."""

    def __init__(self, over: str) -> None:
        self.over = over

    def passed_forward(self, *given: Any) -> Any:
        y, total, kept = super().passed_forward(*given)
        inputs = {name: np.copy(each) for name, each in kept.inputs.items() if each is not None}
        kept.inputs[self.over][...] = total
        return y, total, Kept(kept.saved, {**kept.inputs, **inputs})


class DxInItsPlace(Relative):
    """dx is written over dsum."""

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        found = super().passed_backward(dy, *others)
        others[0][...] = found[0]
        return found


class OneBuffer(Relative):
    """Sums of one shape share a buffer."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def passed_forward(self, *given: Any) -> Any:
        y, total, kept = super().passed_forward(*given)
        buffer = self.buffers.setdefault(total.shape, np.empty_like(total))
        buffer[...] = total
        return y, buffer, kept


class LatestSum(Relative):
    """Backward reads the row from where the latest forward wrote it."""

    def kept(self, saved: Any) -> Any:
        self.latest = saved
        return saved

    def backward(self, dy: Array, saved: Any) -> Results:  # noqa: ARG002
        return super().backward(dy, self.latest)


def both(of: Callable[[Mapping[str, Any]], Any]) -> Changed:
    return Changed(dx=of, dresidual=of)


BOTH_WRONG = {"dx": "wrong", "dresidual": "wrong"}

RESIDUALS = [
    plant(ResidualTimesTheNorm(), "(dsum + dy)*dnorm", ADD_RMS_NORM, **BOTH_WRONG),
    plant(DsumIgnored("x", "residual"), "dsum ignored", ADD_RMS_NORM, **BOTH_WRONG),
    plant(both(lambda at: at["dx"] + at["dsum"]), "dsum twice", ADD_RMS_NORM, **BOTH_WRONG),
    plant(DsumIgnored("x"), "dsum at the residual only", ADD_RMS_NORM, dx="wrong"),
    plant(
        DsumIgnored("residual"),
        "dsum at x only",
        ADD_LAYER_NORM,
        "float16",
        dresidual="wrong",
    ),
    plant(
        Changed(dresidual=lambda at: at["dsum"]),
        "dresidual is dsum",
        ADD_RMS_NORM,
        dresidual="wrong",
    ),
    plant(Changed(dresidual=lambda _: None), "no dresidual", ADD_RMS_NORM, verdict="runs"),
    plant(Changed(sum=lambda at: at["x"]), "x returned as the sum", ADD_RMS_NORM, sum="wrong"),
    plant(
        Changed(sum=lambda at: at["residual"]),
        "the residual returned as the sum",
        ADD_LAYER_NORM,
        "float16",
        sum="wrong",
    ),
    plant(Changed(sum=lambda at: at["y"]), "y returned as the sum", ADD_RMS_NORM, sum="wrong"),
    plant(
        Changed(sum=lambda at: at["sum"].astype(np.float32)),
        "the sum in float32",
        ADD_RMS_NORM,
        verdict="runs",
    ),
    plant(
        Adds(lambda x, _: x, returned=False),
        "the norm of x, beside the sum",
        ADD_RMS_NORM,
        y="wrong",
    ),
    plant(
        Adds(lambda _, residual: residual, returned=False),
        "the norm of the residual",
        ADD_LAYER_NORM,
        "float16",
        y="wrong",
    ),
    plant(
        Adds(lambda x, residual: x + residual + residual),
        "the residual added twice",
        ADD_RMS_NORM,
        y="wrong",
        sum="wrong",
    ),
    plant(
        Adds(lambda x, residual: x - residual, normalized=False),
        "a difference returned as the sum",
        ADD_LAYER_NORM,
        "float16",
        sum="wrong",
    ),
    plant(
        Adds(lambda x, residual: x + residual.astype(np.float16).astype(x.dtype)),
        "the residual through float16",
        ADD_RMS_NORM,
        "float32",
        y="wrong",
        sum="wrong",
    ),
    plant(KeepsX(), "gradients at x, not at the sum", ADD_RMS_NORM, dx="wrong", dgamma="wrong"),
    plant(SumInItsPlace("x"), "the sum over x", ADD_RMS_NORM, verdict="inputs kept"),
    plant(
        SumInItsPlace("residual"), "the sum over the residual", ADD_RMS_NORM, verdict="inputs kept"
    ),
    plant(DxInItsPlace(), "dx over dsum", ADD_RMS_NORM, verdict="inputs kept"),
    plant(OneBuffer(), "sums in one buffer", OF_THE_UNROUNDED, verdict="results kept"),
    plant(LatestSum(), "gradients at the latest sum", OF_THE_UNROUNDED, verdict="own state"),
]
