"""A right norm of any kind in steps: what is added, what it is multiplied by, where it is rounded.

It is the kernel of `verify.planted.base` behind three steps more, which a planted bug may replace.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.operations.norms import Norm
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, Float64s, dtype_of
from verify.planted.base import Kernel, Saved, to_24_bits


class Kept(NamedTuple):
    """What backward is given: what forward of the base saved, and gamma as it was given."""

    saved: Any
    gamma: Array | None


class Relative(Kernel):
    """Any norm; `recipe` says where y is rounded on the way."""

    operation: Norm
    recipe = "late"

    # The steps that the base does not have.

    def added(self, x: Array, residual: Array) -> tuple[Array, Array]:
        """Return what is normalized, and the sum that is returned."""
        total = x + residual
        if self.operation.sum == "rounded":
            return total, total
        return x.astype(np.float64) + residual.astype(np.float64), total

    def gain(self, gamma: Array | None) -> Array | None:
        """Return what the base is to multiply by."""
        if gamma is None or self.operation.gain == "plain":
            return gamma
        one_more: Array = 1.0 + gamma.astype(np.float64)
        return one_more

    def arriving(self, dx: Array, dsum: Array) -> tuple[Array, Array]:
        """Return the gradients of both summands."""
        with np.errstate(all="ignore"):
            total = (dx.astype(np.float64) + dsum.astype(np.float64)).astype(dsum.dtype)
        return total, total

    def result_like(self, x: Array) -> Array:
        """Return an array of the type of y."""
        result = self.operation.result_type
        return x if not result else np.empty(0, dtype_of(result))

    # Where it rounds.

    def output(self, saved: Saved) -> Float64s:
        xhat, gain, beta = self.xhat(saved), self.gamma(saved), self.beta(saved)
        kind = saved.x.dtype if saved.x.dtype != np.float64 else None
        if self.recipe == "early":
            xhat = rounded(xhat, kind)
        if self.recipe == "product":
            return rounded(xhat * gain, kind) + beta
        return xhat * gain + beta

    # Both passes of the operation.

    def passed_forward(self, *given: Any) -> Any:
        *arrays, eps = given
        names = self.operation.inputs_of("data", "parameter")
        inputs = dict(zip(names, arrays, strict=True))
        x, gamma = inputs["x"], inputs["gamma"]
        with np.errstate(all="ignore"):
            rows, total = self.added(x, inputs["residual"]) if self.operation.adds else (x, None)
            saved = self.statistics(rows, self.gain(gamma), inputs.get("beta"), eps)
            y = self.cast(self.output(saved), self.result_like(x)).reshape(x.shape)
        kept = Kept(self.kept(saved), gamma)
        return (y, total, kept) if self.operation.adds else (y, kept)

    def passed_backward(self, dy: Array, *others: Any) -> tuple[Any, ...]:
        *arriving, kept = others
        dx, dgamma, dbeta = self.backward(dy, kept.saved)
        with np.errstate(all="ignore"):
            if dgamma is not None:
                dgamma = dgamma.astype(kept.gamma.dtype)
            rows = self.arriving(dx, arriving[0]) if arriving else (dx,)
        return (*rows, dgamma, dbeta)[: len(rows) + len(self.operation.parameters)]


def rounded(values: Float64s, kind: Any) -> Float64s:
    """Round to a type and back; through float32, as kernels do."""
    if kind is None:
        return values
    with np.errstate(all="ignore"):
        narrow: Float64s = to_24_bits(values).astype(kind).astype(np.float64)
    return narrow


def relative(
    kernel: Relative,
    name: str,
    dtypes: Collection[str],
    operation: Norm,
    also: Collection[str] = (),
    recipe: str = "",
) -> Subject:
    """Make a subject of a kernel; `recipe` is what it claims."""
    kernel.operation, kernel.centred = operation, operation.centred
    return Subject(
        kernel.passed_forward,
        kernel.passed_backward,
        f"{operation.words}: {name}",
        list(dtypes),
        list(also),
        operation=operation,
        recipe=recipe,
    )
