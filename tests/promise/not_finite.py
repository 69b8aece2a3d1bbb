"""Cases with infinities and NaN: in a few places of each array, in many or in none."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from promise.families import DTYPES, EPSILONS, Array, Case

__all__ = ["not_finite_cases"]


def not_finite_cases(
    dtype: np.dtype[Any], count: int, rows: tuple[int, ...], widths: tuple[int, ...]
) -> Iterator[Case]:
    """Yield so many cases of these shapes; parameters are of every type in turn."""
    random = np.random.default_rng(DTYPES.index(dtype))

    def draw(kind: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        array: Array = random.standard_normal(shape).astype(kind)
        chosen = random.random(shape) < random.choice([0.0, 0.01, 0.3])
        array[chosen] = random.choice([np.inf, -np.inf, np.nan], int(chosen.sum()))
        return array

    for seed in range(count):
        shape = int(random.choice(rows)), int(random.choice(widths))
        other = DTYPES[seed % 4]
        x, dy = draw(dtype, shape), draw(dtype, shape)
        gamma, beta = draw(other, shape[1:]), draw(other, shape[1:])
        eps = float(random.choice(EPSILONS))
        yield Case(f"{dtype.name} not finite {shape} {seed}", x, gamma, beta, dy, eps)
