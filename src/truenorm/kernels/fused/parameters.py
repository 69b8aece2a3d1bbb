"""gamma and beta as kernels take them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT32, FLOAT64, FloatFormat
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.blocks import Coded, coded
from truenorm.kernels.fused.compiled.narrow.parameters import prepare
from truenorm.kernels.fused.scratch import aligned
from truenorm.kernels.rounding import canonical_nan, round_to

__all__ = ["Parameters", "as_given", "without"]


class Parameters(NamedTuple):
    """What double-double needs of the parameters."""

    columns: NDArray[np.float64]
    """gamma, beta and the weight of each column in the bound."""
    constant: Coded
    """y of a row without spread: beta, rounded."""

    @classmethod
    def of(cls, call: Call, special: Flags) -> "Parameters":
        """Prepare the parameters of a call; columns that are special count as zero."""
        columns = aligned(3 * call.size).reshape(3, -1)
        stored = np.empty(call.size, canonical_nan(call.target).dtype)
        constant = coded(stored, call.target)
        gamma, beta = without(special, call.gamma, call.beta)
        prepare(gamma, beta, columns, constant)
        return cls(columns, constant)


def without(special: Flags, *values: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return parameters with zeros in columns that are special."""
    if not special.any():
        return values
    return tuple(np.where(special, 0.0, each) for each in values)


def as_given(
    call: Call, types: tuple[FloatFormat | None, ...], *values: NDArray[np.float64]
) -> list[Coded]:
    """Return parameters as kernels of level 1 and of fast mode read them.

    That is in the type of x if they have it or x is of float64, and else in float32: kernels are
    compiled for those.
    """
    own = all(target is None or target is call.target for target in types)
    target = call.target if own or call.target is FLOAT64 else FLOAT32
    return [coded(round_to(each, target), target) for each in values]
