"""The small transformer over some sequences of a batch, with gradients that can be merged.

Matrix products are outside truenorm's promise: how they round depends on their shapes. So they are
done one sequence at a time, and their gradients are kept apart. The norms take all rows at once,
and leave partials behind.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# For this module and for those that import it first: transformer.py is in the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from transformer import Array, Backward, Model, Parameters

import truenorm as tn

Partials = dict[str, tn.PartialGradients]
Text = NDArray[np.intp]


class Parallel(Model):
    """The transformer over some sequences: norms take them together, all else one by one."""

    def __init__(self, p: Parameters, sequences: int) -> None:
        super().__init__(p)
        self.partials: Partials = {}
        self.of_sequences: list[Parameters] = [{} for _ in range(sequences)]
        self.losses: list[float] = []

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalize rows, which have nothing to do with each other until gradients are added."""
        y, saved = tn.layer_norm_forward(x, self.p[f"{name}.gamma"], self.p[f"{name}.beta"])

        def backward(dy: Array) -> Array:
            dx, self.partials[name] = tn.layer_norm_backward_partial(dy, saved)
            return dx

        return y, backward

    def attention(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Let each place look at those before it."""
        return self._one_by_one(partial(super().attention, layer), x)

    def feed_forward(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Widen, bend by tanh, narrow."""
        return self._one_by_one(partial(super().feed_forward, layer), x)

    def embed(self, given: Text) -> tuple[Array, Callable[[Array], None]]:
        """Look up letters and places."""
        return self._one_by_one(super().embed, given)

    def guess(self, x: Array, wanted: Text) -> tuple[float, Callable[[], Array]]:
        """Return how badly each next letter is guessed."""
        guess = super().guess
        done = [guess(*pair) for pair in zip(x[:, None], wanted[:, None], strict=True)]
        self.losses = [loss for loss, _ in done]

        def backward() -> Array:
            return np.concatenate([self._back(k, back) for k, (_, back) in enumerate(done)])

        return float(np.mean(self.losses)), backward

    def _one_by_one(self, step: Callable[[Any], tuple[Array, Any]], x: Any) -> tuple[Array, Any]:
        done = [step(one) for one in x[:, None]]

        def backward(dy: Array) -> Array | None:
            pairs = enumerate(zip(done, dy[:, None], strict=True))
            dx = [self._back(k, back, one) for k, ((_, back), one) in pairs]
            return None if dx[0] is None else np.concatenate(dx)

        return np.concatenate([y for y, _ in done]), backward

    def _back(self, sequence: int, back: Callable[..., Any], *dy: Array) -> Any:
        """Go back through a step of one sequence, and keep its gradients apart."""
        dx = back(*dy)
        self.of_sequences[sequence] |= self.gradients
        self.gradients = {}
        return dx
