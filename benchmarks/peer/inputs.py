"""What every peer is given, and what it is then: in each peer's own environment."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EPS", "EXISTING", "NEW", "Array", "Contestant", "Inputs"]

EPS = 1e-5
Array = NDArray[Any]
NEW, EXISTING = "new array", "existing array"


@dataclass(frozen=True)
class Inputs:
    """The arguments of one forward and one backward pass, the same in every process."""

    x: Array
    gamma: Array
    beta: Array
    dy: Array
    centred: bool = True  # if not, it is RMSNorm, which has no beta

    @classmethod
    def normal(
        cls, shape: tuple[int, ...], seed: int, dtype: str, operation: str = "layer_norm"
    ) -> "Inputs":
        """Draw normal data."""
        random = np.random.default_rng(seed)
        sizes = (shape, shape[-1:], shape[-1:], shape)
        drawn = (random.standard_normal(size, dtype=np.float32) for size in sizes)
        x, gamma, beta, dy = (each.astype(_dtype(dtype)) for each in drawn)
        return cls(x, gamma, beta, dy, centred=operation == "layer_norm")

    @property
    def forward(self) -> tuple[Array, ...]:
        """What a forward pass is given."""
        return (self.x, self.gamma, self.beta) if self.centred else (self.x, self.gamma)

    def rows(self, array: Array) -> Array:
        """Return an array as a table of rows, for those who know nothing else."""
        return array.reshape(-1, array.shape[-1])


@dataclass(frozen=True)
class Contestant:
    """One way to call a peer, in one direction.

    `run` is what is timed. `results` turns what it returns into NumPy arrays, to be checked: y, or
    dx, dgamma and dbeta.
    """

    name: str
    direction: str
    writes_to: str
    run: Callable[[], Any]
    results: Callable[[Any], list[Array]]


def _dtype(name: str) -> Any:
    """Return a dtype by name, also where NumPy does not know it."""
    return import_module("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)
