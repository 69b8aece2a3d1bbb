"""The backend as the driver sees it."""

import logging
from typing import Any

from truenorm.kernels.call import Call, Flags
from truenorm.kernels.protocol import Backward, Forward
from truenorm.kernels.reference.backward import NarrowBackward, PairBackward, SingleBackward
from truenorm.kernels.reference.columns import Terms
from truenorm.kernels.reference.forward import NarrowForward, PairForward, SingleForward
from truenorm.kernels.rows import Source

__all__ = ["ReferenceBackend"]

LARGE = 10**6

logger = logging.getLogger("truenorm")


class ReferenceBackend:
    """NumPy and Python integers: always there, made to be read."""

    name = "reference"
    core = None

    def forward(self, call: Call, _special: Flags) -> Forward:
        """Return forward for a call."""
        _announce(call)
        if call.level == "narrow":
            return NarrowForward(call)
        return SingleForward(call) if call.level == "single" else PairForward(call)

    def backward(self, call: Call, _dy: Source) -> Backward[Any]:
        """Return backward for a call."""
        _announce(call)
        if call.level == "narrow":
            return NarrowBackward(call)
        return SingleBackward(call) if call.level == "single" else PairBackward(call)

    def terms(self, call: Call) -> Terms:
        """Return how dgamma of a call at level 1 is summed on the lattice."""
        return Terms(call)


def _announce(call: Call) -> None:
    """Tell whoever waits for double-double why."""
    if call.level in ("pairs", "plain") and call.count * call.size > LARGE:
        logger.info(
            "%d float64 elements in double-double with NumPy take a while",
            call.count * call.size,
        )
