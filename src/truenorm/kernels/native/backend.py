"""The native backend: rows of at most float32 by the C core, the rest by the reference.

Ordinary arrays go straight to the core (`ops.fast_path`). `levels` has what the driver needs for
the rest; it is imported on demand, as most programs never need it.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truenorm.kernels.native import _core

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend, Backward, Forward
    from truenorm.kernels.call import Call, Flags
    from truenorm.kernels.lattice.terms import Terms
    from truenorm.kernels.rows import Source

__all__ = ["NativeBackend", "selected_instructions"]

LARGEST_EPS = 2.0**200
"""Beyond it, and below its inverse, products could leave the range of float64."""

selected_instructions = _core.select(os.environ.get("TRUENORM_INSTRUCTIONS") or None)
"""The instruction set in use. The variable may lower the choice, not raise it."""


class NativeBackend:
    """The C core for float32, float16 and bfloat16.

    Parameters
    ----------
    reference : callable
        Returns the backend for other types, for partials and for elements that double-double
        leaves undecided.
    """

    name = "native"
    core = _core

    def __init__(self, reference: Callable[[], "Backend"]) -> None:
        self._reference = reference

    @property
    def for_partials(self) -> "Backend":
        """The backend that computes partials."""
        return self._reference()

    def forward(self, call: "Call", special: "Flags") -> "Forward":
        """Return forward for a call."""
        if not _is_for_core(call):
            return self._reference().forward(call, special)
        from truenorm.kernels.native import levels

        if call.level == "single":
            return levels.FastForward(call)
        return levels.CorrectForward(call, self._reference())

    def backward(self, call: "Call", dy: "Source") -> "Backward[Any]":
        """Return backward for a call."""
        if not _is_for_core(call):
            return self._reference().backward(call, dy)
        from truenorm.kernels.native import levels

        if call.level == "single":
            return levels.FastBackward(call)
        return levels.CorrectBackward(call, dy, self._reference())

    def terms(self, call: "Call") -> "Terms[Any]":
        """Return the fixed-point sums of dgamma."""
        return self._reference().terms(call)


def _is_for_core(call: "Call") -> bool:
    """Return True if rows are float32, parameters at most that, and eps is moderate."""
    moderate = call.eps == 0 or 1 / LARGEST_EPS <= call.eps <= LARGEST_EPS
    return call.level in ("narrow", "single") and moderate
