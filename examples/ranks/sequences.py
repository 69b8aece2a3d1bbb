"""The small transformer over some sequences of a batch, with gradients that can be merged.

Matrix products are outside the promise of truenorm: their rounding depends on their shapes. So
they process one sequence at a time, with separate gradients. The norms take all rows at once, and
produce partials.
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
    """The transformer over some sequences: norms take all of them, other steps one by one."""

    def __init__(self, p: Parameters, sequences: int) -> None:
        super().__init__(p)
        self.partials: Partials = {}
        self.of_sequences: list[Parameters] = [{} for _ in range(sequences)]
        self.losses: list[float] = []

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalize all rows with truenorm."""
        y, saved = tn.layer_norm_forward(x, self.p[f"{name}.gamma"], self.p[f"{name}.beta"])

        def backward(dy: Array) -> Array:
            dx, self.partials[name] = tn.layer_norm_backward_partial(dy, saved)
            return dx

        return y, backward

    def attention(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Apply causal self-attention."""
        return self._one_by_one(partial(super().attention, layer), x)

    def feed_forward(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Apply an MLP with tanh."""
        return self._one_by_one(partial(super().feed_forward, layer), x)

    def embed(self, text: Text) -> tuple[Array, Callable[[Array], None]]:
        """Return the embeddings of letters and positions."""
        return self._one_by_one(super().embed, text)

    def guess(self, x: Array, target: Text) -> tuple[float, Callable[[], Array]]:
        """Return the cross entropy of the next letters."""
        guess = super().guess
        done = [guess(*pair) for pair in zip(x[:, None], target[:, None], strict=True)]
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
        """Run the backward pass of one sequence, and store its gradients separately."""
        dx = back(*dy)
        self.of_sequences[sequence] |= self.gradients
        self.gradients = {}
        return dx
