"""The contestants of a timing: truenorm, the textbook forms, a copy and a triad.

truenorm, the copy and the triad write to an existing array; the textbook forms allocate.
Contestants take turns on the same normal data.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.stopwatch import Contestants, Stopwatch, seconds_of
from truenorm import textbook
from truenorm.api.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.api.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.api.saved import Saved

if TYPE_CHECKING:
    pass

FLOORS = {"forward": "copy", "backward": "triad"}
"""The least work that moves the same bytes: NumPy on one thread."""
DIRECTIONS = tuple(FLOORS)
MODES = ("correct", "fast")
TEXTBOOK, WIDENED = "textbook", "textbook in float64"

Array = NDArray[Any]
Calls = dict[str, Callable[[], Any]]
Shape = tuple[int, ...]


class Norm(NamedTuple):
    """An operation of truenorm and its textbook form."""

    parameters: int
    forward: Callable[..., Any]
    backward: Callable[..., Any]
    textbook_forward: Callable[..., Any]
    textbook_backward: Callable[..., Any]


NORMS = {
    "layer_norm": Norm(
        2,
        *(layer_norm_forward, layer_norm_backward, textbook.forward, textbook.backward),
    ),
    "rms_norm": Norm(
        1,
        *(rms_norm_forward, rms_norm_backward),
        *(textbook.rms_norm_forward, textbook.rms_norm_backward),
    ),
}


class Contest:
    """The contestants of one shape and type, on normal data of a seed."""

    def __init__(
        self,
        norm: Norm,
        shape: Shape,
        dtype: np.dtype[Any],
        threads: int | None,
        *,
        backend: str | None = None,
        seed: int = 0,
    ) -> None:
        random = np.random.default_rng(seed)
        self.norm = norm
        self.x, self.dy = (random.standard_normal(shape).astype(dtype) for _ in range(2))
        drawn = random.standard_normal((norm.parameters, shape[-1])).astype(dtype)
        self.arguments = (self.x, *drawn)
        self.out = np.empty_like(self.x)
        self.options: dict[str, Any] = {"out": self.out, "threads": threads, "backend": backend}
        self.saved: dict[str, Saved] = {}

    def of(self, direction: str) -> Calls:
        """Return the calls of a direction by name, the floor first."""
        ours: Calls = {
            mode: partial(self.norm.forward, *self.arguments, rounding=mode, **self.options)
            for mode in MODES
        }
        floor: Callable[[], Any] = partial(np.copyto, self.out, self.x)
        narrow: Callable[[], Any] = partial(self.norm.textbook_forward, *self.arguments)
        wide: Callable[[], Any] = self._widened_forward
        if direction == "backward":  # each has what its own forward saved, untimed
            self.saved = {mode: call()[1] for mode, call in ours.items()}
            ours = {
                mode: partial(self.norm.backward, self.dy, saved, **self.options)
                for mode, saved in self.saved.items()
            }
            # On bits: sums of float16 would be limited by conversions.
            bits = np.dtype(f"u{self.x.itemsize}")
            x, dy, out = (array.view(bits) for array in (self.x, self.dy, self.out))
            floor = partial(np.bitwise_or, x, dy, out=out)
            narrow = partial(self.norm.textbook_backward, self.dy, narrow()[1])
            wide = partial(self._widened_backward, wide()[1])
        calls = {FLOORS[direction]: floor}
        calls |= {f"truenorm {mode}": call for mode, call in ours.items()}
        calls[TEXTBOOK] = narrow
        # For float64 the two textbook forms are one.
        return calls if self.x.dtype == np.float64 else calls | {WIDENED: wide}

    def _widened_forward(self) -> tuple[Array, textbook.Saved]:
        """Run forward in float64; the casts are part of the cost."""
        arguments = (each.astype(np.float64) for each in self.arguments)
        y, saved = self.norm.textbook_forward(*arguments)
        return y.astype(self.x.dtype), saved

    def _widened_backward(self, saved: textbook.Saved) -> list[Array]:
        gradients = self.norm.textbook_backward(self.dy.astype(np.float64), saved)
        return [each.astype(self.x.dtype) for each in gradients]


class Timing(NamedTuple):
    """Seconds of the first call, and the median of the turns."""

    first: float
    median: float
    calls: int  # in a turn


def label(shape: Shape) -> str:
    """Return a shape as 2x128x1024."""
    return "x".join(map(str, shape))


TURN = 0.005
"""The least seconds of a turn, since clock and scheduler are coarser than short calls."""
MOST_CALLS = 1000


def take_turns(contestants: Contestants, turns: Iterable[object]) -> dict[str, Timing]:
    """Time every contestant once a turn, with as many calls as fill `TURN`."""
    watch = Stopwatch()
    first: dict[str, float] = {}
    calls: dict[str, int] = {}
    for _ in turns:
        if not first:
            first = {name: seconds_of(call) for name, call in contestants.items()}
            second = {name: seconds_of(call) for name, call in contestants.items()}
            calls = {
                name: min(MOST_CALLS, math.ceil(TURN / max(seconds, TURN / MOST_CALLS)))
                for name, seconds in second.items()
            }
        watch.go_round(contestants, calls)
    return {name: Timing(first[name], watch.p50(name), calls[name]) for name in contestants}
