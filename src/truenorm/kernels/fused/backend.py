"""The backend as the driver sees it."""

from collections.abc import Callable
from typing import Any

from truenorm.kernels.backend import AtOnce, Backward, Forward
from truenorm.kernels.call import Call, Flags, Level
from truenorm.kernels.fused import at_once
from truenorm.kernels.fused.fast.plain import PlainBackward, PlainForward
from truenorm.kernels.fused.fast.single import SingleBackward, SingleForward
from truenorm.kernels.fused.narrow import NarrowBackward, NarrowForward
from truenorm.kernels.fused.pairs import PairBackward, PairForward
from truenorm.kernels.fused.sums.terms import Terms
from truenorm.kernels.rows import Source

__all__ = ["FusedBackend"]

FORWARD: dict[Level, Callable[[Call, Flags], Forward]] = {
    "narrow": NarrowForward,
    "pairs": PairForward,
    "single": SingleForward,
    "plain": PlainForward,
}


class FusedBackend:
    """Numba: one or two sweeps over each row while it is in the cache, on several threads."""

    name = "fused"
    at_once: AtOnce | None = at_once
    core = None

    @property
    def for_partials(self) -> "FusedBackend":
        """The backend that computes partials."""
        return self

    def forward(self, call: Call, special: Flags) -> Forward:
        """Return forward for a call."""
        return FORWARD[call.level](call, special)

    def backward(self, call: Call, dy: Source) -> Backward[Any]:
        """Return backward for a call."""
        if call.level == "pairs":
            return PairBackward(call, dy)
        if call.level == "plain":
            return PlainBackward(call, dy)
        return SingleBackward(call) if call.level == "single" else NarrowBackward(call)

    def terms(self, call: Call) -> Terms:
        """Return how dgamma of a call at level 1 is summed on the lattice."""
        return Terms(call)
