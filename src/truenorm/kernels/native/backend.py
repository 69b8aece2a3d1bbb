"""The native backend: the C core, with the reference backend where the core does not apply.

Fast-path arrays go straight to the core (`api.fast_path`). `blocks` serves the driver for all
other arrays; it is imported on demand, since most programs never need it.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truenorm.exact import FLOAT64
from truenorm.kernels.native import _core

if TYPE_CHECKING:
    from truenorm.kernels.call import Call
    from truenorm.kernels.protocol import Backend, Backward, FixedPointDgamma, Forward

LARGEST_EPS = 2.0**200
"""Beyond it, and below its inverse, products could leave the range of float64."""

selected_instructions = _core.select(os.environ.get("TRUENORM_INSTRUCTIONS") or None)
"""The instruction set in use. The variable may lower the choice, not raise it."""


class NativeBackend:
    """The C core.

    Parameters
    ----------
    reference : callable
        Returns the backend for eps far out, parameters beyond the range of float32 beside
        narrower rows, and elements that double-double leaves undecided.
    """

    name = "native"

    def __init__(self, reference: Callable[[], "Backend"]) -> None:
        self._reference = reference

    def forward(self, call: "Call") -> "Forward":
        """Return the forward pass of a call."""
        if not _is_for_core(call):
            return self._reference().forward(call)
        from truenorm.kernels.native.blocks import NativeForward

        return NativeForward(call, self._reference())

    def backward(self, call: "Call") -> "Backward[Any]":
        """Return the backward pass of a call."""
        if not _is_for_core(call):
            return self._reference().backward(call)
        from truenorm.kernels.native.blocks import NativeBackward

        return NativeBackward(call, self._reference())

    def fixed_point_dgamma(self, call: "Call") -> "FixedPointDgamma[Any]":
        """Return the fixed-point sum of dgamma of a call in tier 1."""
        if not _is_for_core(call):
            return self._reference().fixed_point_dgamma(call)
        from truenorm.kernels.native.blocks import FixedPointDgamma

        return FixedPointDgamma(call, self._reference())


def _is_for_core(call: "Call") -> bool:
    """Return True if eps is moderate, and parameters beside narrower rows fit these.

    The bounds of narrower rows hold for parameters in the range of float32.
    """
    moderate = call.eps == 0 or 1 / LARGEST_EPS <= call.eps <= LARGEST_EPS
    return moderate and (
        call.x_format is FLOAT64
        or call.arithmetic != "tier2"
        or (call.gamma.fits_float32 and call.beta.fits_float32)
    )
