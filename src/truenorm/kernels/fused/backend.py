"""The backend as the driver sees it."""

from typing import Any

from truenorm.kernels.backend import AtOnce, Backward, Forward
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.fused import at_once
from truenorm.kernels.fused.narrow import NarrowBackward, NarrowForward
from truenorm.kernels.fused.pairs import PairBackward, PairForward
from truenorm.kernels.fused.single import SingleBackward, SingleForward
from truenorm.kernels.rows import Source

__all__ = ["FusedBackend"]


class FusedBackend:
    """Numba: one or two sweeps over each row while it is in the cache, on several threads."""

    name = "fused"
    at_once: AtOnce | None = at_once

    def forward(self, call: Call, special: Flags) -> Forward:
        """Return forward for a call."""
        if call.level == "narrow":
            return NarrowForward(call, special)
        return (
            PairForward(call, special) if call.level == "pairs" else SingleForward(call, special)
        )

    def backward(self, call: Call, dy: Source) -> Backward[Any]:
        """Return backward for a call."""
        if call.level == "narrow":
            return NarrowBackward(call)
        return PairBackward(call, dy) if call.level == "pairs" else SingleBackward(call)
