"""gamma and beta as forward kernels take them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused.blocks import Coded, coded
from truenorm.kernels.fused.compiled.narrow.forward import prepare
from truenorm.kernels.fused.scratch import aligned
from truenorm.kernels.rounding import canonical_nan

__all__ = ["Parameters"]


class Parameters(NamedTuple):
    """What every row needs of the parameters."""

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
        gamma, beta = call.gamma, call.beta
        if special.any():
            gamma, beta = (np.where(special, 0.0, each) for each in (gamma, beta))
        prepare(gamma, beta, columns, constant)
        return cls(columns, constant)
