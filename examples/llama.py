"""The transformer in the style of Llama: RMSNorm and a gated MLP, trained in NumPy.

``python examples/llama.py`` checks the gradients, trains with one thread and with two, and
compares the bits. Every backward pass is written by hand; transformer.py has the other parts.
"""

from typing import ClassVar

import numpy as np
from transformer import Array, Backward, Model, main

import truenorm as tn


class Llama(Model):
    """A transformer with RMSNorm and a gated MLP."""

    WEIGHTS: ClassVar = {
        "attend": (1, 3),
        "join": (1, 1),
        "gate": (1, 3),
        "widen": (1, 3),
        "narrow": (3, 1),
    }
    NORM: ClassVar = {"gamma": 1.0}

    def norm(self, name: str, x: Array) -> tuple[Array, Backward]:
        """Normalize with truenorm."""
        y, saved = tn.rms_norm_forward(x, self.p[f"{name}.gamma"], threads=self.threads)

        def backward(dy: Array) -> Array:
            gradient = tn.rms_norm_backward(dy, saved, threads=self.threads)
            self.gradients[f"{name}.gamma"] = np.asarray(gradient.dgamma)
            return gradient.dx

        return y, backward

    def feed_forward(self, layer: int, x: Array) -> tuple[Array, Backward]:
        """Apply the gated MLP with silu."""
        gate, back_from_gate = self.linear(f"{layer}.gate", x)
        wide, back_from_wide = self.linear(f"{layer}.widen", x)
        sigmoid = 1 / (1 + np.exp(-gate))
        silu = gate * sigmoid
        y, back_to_product = self.linear(f"{layer}.narrow", silu * wide)

        def backward(dy: Array) -> Array:
            dproduct = back_to_product(dy)
            dgate = dproduct * wide * (sigmoid + silu * (1 - sigmoid))
            return back_from_gate(dgate) + back_from_wide(dproduct * silu)

        return y, backward


if __name__ == "__main__":
    raise SystemExit(main(Llama, __doc__ or ""))
