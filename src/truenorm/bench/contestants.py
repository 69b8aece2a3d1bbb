"""Who is timed, forward and backward.

truenorm and the bare machine write to an array that exists. The textbook forms make new ones, as
their code is written.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm import textbook
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.ops.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.ops.saved import Saved

__all__ = ["DIRECTIONS", "FLOORS", "MODES", "NORMS", "TEXTBOOK", "Contest"]

FLOORS = {"forward": "copy", "backward": "triad"}
"""What moves the same bytes and does nothing else: NumPy on one thread."""
DIRECTIONS = tuple(FLOORS)
MODES = ("correct", "fast")
TEXTBOOK, WIDENED = "textbook", "textbook in float64"

Array = NDArray[Any]
Contestants = dict[str, Callable[[], Any]]


class Norm(NamedTuple):
    """An operation, as truenorm and as a textbook does it."""

    parameters: int
    forward: Callable[..., tuple[Array, Saved]]
    backward: Callable[..., Any]
    textbook_forward: Callable[..., tuple[Array, textbook.Saved]]
    textbook_backward: Callable[..., tuple[Array, ...]]


NORMS = {
    "layer_norm": Norm(
        2, layer_norm_forward, layer_norm_backward, textbook.forward, textbook.backward
    ),
    "rms_norm": Norm(
        1,
        rms_norm_forward,
        rms_norm_backward,
        textbook.rms_norm_forward,
        textbook.rms_norm_backward,
    ),
}
"""By the names of the operations."""


class Contest:
    """The contestants on one set of normal data, the same for each shape and type."""

    def __init__(
        self, norm: Norm, shape: tuple[int, ...], dtype: np.dtype[Any], threads: int | None
    ) -> None:
        random = np.random.default_rng(0)
        self.norm = norm
        self.x, self.dy = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        drawn = random.standard_normal((norm.parameters, shape[-1])).astype(dtype)
        self.given = (self.x, *drawn)
        self.out = np.empty_like(self.x)
        self.how: dict[str, Any] = {"out": self.out, "threads": threads}
        self.saved: dict[str, Saved] = {}

    def of(self, direction: str) -> Contestants:
        """Return them by name, the floor first."""
        found = self._forward() if direction == "forward" else self._backward()
        if self.x.dtype == np.float64:
            del found[WIDENED]  # it is the textbook itself
        return found

    def _forward(self) -> Contestants:
        return {
            FLOORS["forward"]: partial(np.copyto, self.out, self.x),
            **{f"truenorm {mode}": partial(self._truenorm, mode) for mode in MODES},
            TEXTBOOK: partial(self.norm.textbook_forward, *self.given),
            WIDENED: lambda: self._widened_forward()[0],
        }

    def _backward(self) -> Contestants:
        """Each has what its own forward kept, untimed."""
        self.saved = {mode: self._truenorm(mode)[1] for mode in MODES}
        _, kept = self.norm.textbook_forward(*self.given)
        _, wide = self._widened_forward()
        # Of bits: sums of float16 would wait for conversions.
        bits = np.dtype(f"u{self.x.itemsize}")
        x, dy, out = (array.view(bits) for array in (self.x, self.dy, self.out))
        return {
            FLOORS["backward"]: partial(np.bitwise_or, x, dy, out=out),
            **{
                f"truenorm {mode}": partial(self.norm.backward, self.dy, saved, **self.how)
                for mode, saved in self.saved.items()
            },
            TEXTBOOK: partial(self.norm.textbook_backward, self.dy, kept),
            WIDENED: lambda: self._widened_backward(wide),
        }

    def _truenorm(self, mode: str) -> tuple[Array, Saved]:
        return self.norm.forward(*self.given, rounding=mode, **self.how)

    def _widened_forward(self) -> tuple[Array, textbook.Saved]:
        """Widen, compute and cast; all three are what this form costs."""
        y, saved = self.norm.textbook_forward(*(each.astype(np.float64) for each in self.given))
        return y.astype(self.x.dtype), saved

    def _widened_backward(self, saved: textbook.Saved) -> list[Array]:
        gradients = self.norm.textbook_backward(self.dy.astype(np.float64), saved)
        return [each.astype(self.x.dtype) for each in gradients]
