"""The native backend: float32 rows by the C core, everything else by another backend.

Ordinary arrays go straight to the core (`ops.fast_path`). `levels` has what the driver needs for
the rest; it is imported on demand, as most programs never need it.
"""

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from truenorm.exact import FLOAT32, FloatFormat
from truenorm.kernels.native import _core

if TYPE_CHECKING:
    from truenorm.kernels.backend import AtOnce, Backend, Backward, Forward
    from truenorm.kernels.call import Call, Flags
    from truenorm.kernels.lattice.terms import Terms
    from truenorm.kernels.rows import Source

__all__ = ["NativeBackend", "selected_instructions"]

LARGEST_EPS = 2.0**200
"""Beyond it, and below its inverse, products could leave the range of float64."""

selected_instructions = _core.select(os.environ.get("TRUENORM_INSTRUCTIONS") or None)
"""The instruction set in use. The variable may lower the choice, not raise it."""


class NativeBackend:
    """The C core for float32.

    Parameters
    ----------
    reference : callable
        Returns the backend for elements that double-double leaves undecided.
    other : callable
        Returns the backend for other types.
    """

    name = "native"
    core = _core

    def __init__(self, reference: Callable[[], "Backend"], other: Callable[[], "Backend"]) -> None:
        self._reference, self._load_other = reference, other

    @cached_property
    def other(self) -> "Backend":
        """The backend for other types."""
        return self._load_other()

    @property
    def for_partials(self) -> "Backend":
        """The backend that computes partials: itself."""
        return self

    @cached_property
    def at_once(self) -> "AtOnce | None":
        """Whole calls on other types, if the other backend has them."""
        at_once = self.other.at_once
        return None if at_once is None else _OtherTypes(at_once)

    def forward(self, call: "Call", special: "Flags") -> "Forward":
        """Return forward for a call."""
        if not _is_for_core(call):
            return self.other.forward(call, special)
        from truenorm.kernels.native import levels

        if call.level == "single":
            return levels.FastForward(call)
        return levels.CorrectForward(call, self._reference())

    def backward(self, call: "Call", dy: "Source") -> "Backward[Any]":
        """Return backward for a call."""
        if not _is_for_core(call):
            return self.other.backward(call, dy)
        from truenorm.kernels.native import levels

        if call.level == "single":
            return levels.FastBackward(call)
        return levels.CorrectBackward(call, dy, self._reference())

    def terms(self, call: "Call") -> "Terms[Any]":
        """Return the fixed-point sums of dgamma."""
        if not _is_for_core(call):
            return self.other.terms(call)
        from truenorm.kernels.native import fixed_point

        return fixed_point.Terms(call, self._reference())


class _OtherTypes:
    """Whole calls by another backend; float32 rows are the core's."""

    def __init__(self, other: "AtOnce") -> None:
        self._other = other

    def forward(self, settings: Any, target: FloatFormat, *arrays: Any) -> Any:
        """Normalize rows of other types."""
        return None if target is FLOAT32 else self._other.forward(settings, target, *arrays)

    def small_backward(self, settings: Any, target: FloatFormat, *arrays: Any) -> Any:
        """Compute the gradients of a small call on other types."""
        return None if target is FLOAT32 else self._other.small_backward(settings, target, *arrays)

    def backward(self, settings: Any, target: FloatFormat, *arrays: Any) -> Any:
        """Compute dx and the sums over rows of other types."""
        return None if target is FLOAT32 else self._other.backward(settings, target, *arrays)


def _is_for_core(call: "Call") -> bool:
    """Return True if rows are float32, parameters at most that, and eps is moderate."""
    moderate = call.eps == 0 or 1 / LARGEST_EPS <= call.eps <= LARGEST_EPS
    return call.target is FLOAT32 and call.level in ("narrow", "single") and moderate
