"""A layer in ten lines: parameters, saved statistics, and accumulated gradients."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

Array = NDArray[Any]


class LayerNorm:
    """Layer normalization over the last axis, with its parameters."""

    def __init__(self, size: int, dtype: Any = np.float32, eps: float = 1e-5) -> None:
        self.gamma, self.beta, self.eps = np.ones(size, dtype), np.zeros(size, dtype), eps
        self.dgamma, self.dbeta = np.zeros_like(self.gamma), np.zeros_like(self.beta)

    def forward(self, x: Array) -> Array:
        y, self.saved = tn.layer_norm_forward(x, self.gamma, self.beta, eps=self.eps)
        return y

    def backward(self, dy: Array) -> Array:
        dx, dgamma, dbeta = tn.layer_norm_backward(dy, self.saved)
        self.dgamma += dgamma
        self.dbeta += dbeta
        return dx


def main() -> None:
    """Run forward and backward on a batch."""
    random = np.random.default_rng(0)
    layer = LayerNorm(8)
    x, dy = random.standard_normal((2, 4, 3, 8)).astype(np.float32)
    y, dx = layer.forward(x), layer.backward(dy)
    print("mean of a row of y:", y[0, 0].mean().round(6) + 0.0)
    print("dot product of dx and x:", (dx * x).sum().round(3))
    print("dgamma:", layer.dgamma.round(2))


if __name__ == "__main__":
    main()
