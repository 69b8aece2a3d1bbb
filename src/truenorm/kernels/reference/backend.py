"""The backend as the driver sees it."""

import logging
from typing import Any

from truenorm.kernels.call import Call
from truenorm.kernels.protocol import Backward, Forward
from truenorm.kernels.reference.backward import NarrowBackward, PairBackward, SingleBackward
from truenorm.kernels.reference.columns import FixedPointDgamma
from truenorm.kernels.reference.forward import NarrowForward, PairForward, SingleForward

__all__ = ["ReferenceBackend"]

LARGE = 10**6

logger = logging.getLogger("truenorm")


class ReferenceBackend:
    """NumPy and Python integers: always there, made to be read."""

    name = "reference"
    core = None

    def forward(self, call: Call) -> Forward:
        """Return forward for a call."""
        _announce(call)
        if call.arithmetic == "tier1":
            return NarrowForward(call)
        return SingleForward(call) if call.arithmetic == "fast32" else PairForward(call)

    def backward(self, call: Call) -> Backward[Any]:
        """Return backward for a call."""
        _announce(call)
        if call.arithmetic == "tier1":
            return NarrowBackward(call)
        return SingleBackward(call) if call.arithmetic == "fast32" else PairBackward(call)

    def fixed_point_dgamma(self, call: Call) -> FixedPointDgamma:
        """Return how dgamma of a call at level 1 is summed on the lattice."""
        return FixedPointDgamma(call)


def _announce(call: Call) -> None:
    """Tell whoever waits for double-double why."""
    if call.arithmetic in ("tier2", "fast64") and call.count * call.size > LARGE:
        logger.info(
            "%d float64 elements in double-double with NumPy take a while",
            call.count * call.size,
        )
