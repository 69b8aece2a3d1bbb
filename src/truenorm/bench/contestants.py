"""Who is timed, forward and backward.

truenorm and the bare machine write to an array that exists. The textbook forms make new ones, as
their code is written.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm import textbook
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.ops.saved import Saved

__all__ = ["DIRECTIONS", "FLOORS", "MODES", "Contest"]

DIRECTIONS = ("forward", "backward")
FLOORS = {"forward": "copy", "backward": "triad"}
"""What moves the same bytes and does nothing else: NumPy on one thread."""
MODES = ("correct", "fast")
TEXTBOOK, WIDENED = "textbook", "textbook in float64"

Array = NDArray[Any]
Contestants = dict[str, Callable[[], Any]]


class Contest:
    """The contestants on one set of normal data, the same for each shape and type."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], threads: int | None) -> None:
        random = np.random.default_rng(0)
        self.x, self.dy = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        self.gamma, self.beta = random.standard_normal((2, shape[-1])).astype(dtype)
        self.out = np.empty_like(self.x)
        self.threads = threads
        self.saved: dict[str, Saved] = {}

    def of(self, direction: str) -> Contestants:
        """Return them by name, the floor first."""
        return self._forward() if direction == "forward" else self._backward()

    def _forward(self) -> Contestants:
        given = (self.x, self.gamma, self.beta)
        return {
            FLOORS["forward"]: partial(np.copyto, self.out, self.x),
            **{f"truenorm {mode}": partial(self._truenorm, mode) for mode in MODES},
            **self._textbooks(
                partial(textbook.forward, *given), lambda: self._widened_forward()[0]
            ),
        }

    def _backward(self) -> Contestants:
        """Each has what its own forward kept, untimed."""
        for mode in MODES:
            _, self.saved[mode] = self._truenorm(mode)
        _, kept = textbook.forward(self.x, self.gamma, self.beta)
        wide = self._widened_forward()[1]
        return {
            FLOORS["backward"]: self._triad(),
            **{
                f"truenorm {mode}": partial(
                    layer_norm_backward,
                    self.dy,
                    self.saved[mode],
                    out=self.out,
                    threads=self.threads,
                )
                for mode in MODES
            },
            **self._textbooks(
                partial(textbook.backward, self.dy, kept), lambda: self._widened_backward(wide)
            ),
        }

    def _truenorm(self, mode: str) -> tuple[Array, Saved]:
        return layer_norm_forward(
            self.x, self.gamma, self.beta, rounding=mode, out=self.out, threads=self.threads
        )

    def _triad(self) -> Callable[[], Any]:
        """Return two reads and one write, of bits: sums of float16 would wait for conversions."""
        bits = np.dtype(f"u{self.x.itemsize}")
        x, dy, out = (array.view(bits) for array in (self.x, self.dy, self.out))
        return lambda: np.bitwise_or(x, dy, out=out)

    def _textbooks(self, plain: Callable[[], Any], widened: Callable[[], Any]) -> Contestants:
        """Return both forms; of float64 data they are the same one."""
        if self.x.dtype == np.float64:
            return {TEXTBOOK: plain}
        return {TEXTBOOK: plain, WIDENED: widened}

    def _widened_forward(self) -> tuple[Array, textbook.Saved]:
        """Widen, compute and cast; all three are what this form costs."""
        x, gamma, beta = (each.astype(np.float64) for each in (self.x, self.gamma, self.beta))
        y, saved = textbook.forward(x, gamma, beta)
        return y.astype(self.x.dtype), saved

    def _widened_backward(self, saved: textbook.Saved) -> list[Array]:
        gradients = textbook.backward(self.dy.astype(np.float64), saved)
        return [each.astype(self.x.dtype) for each in gradients]
