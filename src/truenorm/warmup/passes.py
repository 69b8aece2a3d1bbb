"""Both passes on all kinds of data, and what Numba did for them: who imports this needs it."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from truenorm import user_cache
from truenorm.kernels.drive.again import compiling_at_once
from truenorm.kernels.fused.compiling import FIRST_TO_TELL, TALLY, folder
from truenorm.ops.layer_norm import layer_norm_backward, layer_norm_forward
from truenorm.ops.rms_norm import rms_norm_backward, rms_norm_forward
from truenorm.ops.saved import Saved
from truenorm.warmup.report import Report, Step
from truenorm.warmup.rows import all_kinds

__all__ = ["Passes", "report_of"]

HOW: dict[str, Any] = {"backend": "fused", "threads": 2}
"""On two threads each has sums of its own, and what adds them is needed."""
NORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], int]] = {
    "layer_norm": (layer_norm_forward, layer_norm_backward, 3),
    "rms_norm": (rms_norm_forward, rms_norm_backward, 2),
}
"""Both passes of each operation, and how many arrays the first one takes."""


class Passes:
    """Forward, and then backward from what it saved."""

    def __init__(self, operation: str, parameters: Sequence[np.dtype[Any]]) -> None:
        self._operation = operation
        self._norm_forward, self._norm_backward, self._arrays = NORMS[operation]
        self._parameters = parameters
        self._saved: list[Saved] = []
        FIRST_TO_TELL.acquire(blocking=False)  # who asks for it knows

    def timed(self, kind: np.dtype[Any], rounding: str, direction: str) -> Step:
        """Run a pass on all data of a type."""
        before, started = TALLY.copy(), time.perf_counter()
        with compiling_at_once():
            if direction == "forward":
                self._forward(kind, rounding)
            else:
                self._backward(kind)
        seconds = time.perf_counter() - started
        compiled, loaded = (TALLY[each] - before[each] for each in ("compiled", "loaded"))
        names = self._operation, kind.name, rounding, direction
        return Step(*names, compiled, loaded, seconds)

    def _forward(self, kind: np.dtype[Any], rounding: str) -> None:
        self._saved = [
            self._norm_forward(*given[: self._arrays], eps=given.eps, rounding=rounding, **HOW)[1]
            for given in all_kinds(kind, self._parameters)
        ]

    def _backward(self, kind: np.dtype[Any]) -> None:
        for inputs, saved in zip(all_kinds(kind, self._parameters), self._saved, strict=True):
            self._norm_backward(inputs.dy, saved, **HOW)


def report_of(steps: tuple[Step, ...], notes: tuple[str, ...]) -> Report:
    """Say what was done, and what of it the next process will find."""
    try:
        place = user_cache.place_of(folder())
    except (OSError, RuntimeError) as refused:  # a RuntimeError is a user without a home
        return Report(steps, None, 0, str(refused), notes)
    return Report(steps, place, len(list(place.iterdir())), notes=notes)
