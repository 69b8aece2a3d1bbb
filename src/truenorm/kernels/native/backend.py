"""The native backend: rows by the C core, what that does not have by the reference.

Ordinary arrays go straight to the core (`api.fast_path`). `blocks` has what the driver needs for
the rest; it is imported on demand, as most programs never need it.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truenorm.exact import FLOAT64
from truenorm.kernels.native import _core

if TYPE_CHECKING:
    from truenorm.kernels.call import Call
    from truenorm.kernels.fixed_point import FixedPointDgamma
    from truenorm.kernels.protocol import Backend, Backward, Forward

LARGEST_EPS = 2.0**200
"""Beyond it, and below its inverse, products could leave the range of float64."""

selected_instructions = _core.select(os.environ.get("TRUENORM_INSTRUCTIONS") or None)
"""The instruction set in use. The variable may lower the choice, not raise it."""


class NativeBackend:
    """The C core.

    Parameters
    ----------
    reference : callable
        Returns the backend for eps far out, parameters wider than the rows, and elements that
        double-double leaves undecided.
    """

    name = "native"
    core = _core

    def __init__(self, reference: Callable[[], "Backend"]) -> None:
        self._reference = reference

    def forward(self, call: "Call") -> "Forward":
        """Return forward for a call."""
        if not _is_for_core(call):
            return self._reference().forward(call)
        from truenorm.kernels.native import blocks

        if call.x_format is FLOAT64:
            return blocks.Forward64(call, self._reference())
        if call.arithmetic == "fast32":
            return blocks.FastForward(call)
        return blocks.CorrectForward(call, self._reference())

    def backward(self, call: "Call") -> "Backward[Any]":
        """Return backward for a call."""
        if not _is_for_core(call):
            return self._reference().backward(call)
        from truenorm.kernels.native import blocks

        if call.x_format is FLOAT64:
            kind = (
                blocks.FastBackward64 if call.arithmetic == "fast64" else blocks.CorrectBackward64
            )
            return kind(call, self._reference())
        if call.arithmetic == "fast32":
            return blocks.FastBackward(call)
        return blocks.CorrectBackward(call, self._reference())

    def fixed_point_dgamma(self, call: "Call") -> "FixedPointDgamma[Any]":
        """Return the fixed-point sums of dgamma."""
        if not _is_for_core(call):
            return self._reference().fixed_point_dgamma(call)
        from truenorm.kernels.native import blocks

        return blocks.FixedPointDgamma(call, self._reference())


def _is_for_core(call: "Call") -> bool:
    """Return True if no parameter is wider than the rows, unless by float32, and eps is moderate.

    Rows narrower than a float64 parameter are computed by the reference.
    """
    moderate = call.eps == 0 or 1 / LARGEST_EPS <= call.eps <= LARGEST_EPS
    return moderate and (call.x_format is FLOAT64 or call.arithmetic in ("tier1", "fast32"))
