"""Group normalization by ``tn.layer_norm``: y and dx with the right bits, and what dgamma needs.

A group of channels is a row of layer norm, with gamma repeated for the places of a channel. Each
call sums dgamma over the samples of one place, and the places of a channel have to be added up. So
gamma is passed as float64, which gives sums in float64; a bound tells if the last bit of their
total is certain.
"""

from math import fsum, prod, ulp
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

Array = NDArray[Any]


class GroupNorm:
    """Group normalization of arrays of shape (N, C, ...) in float32."""

    def __init__(self, groups: int, sums: Any = np.float64) -> None:
        self.groups, self.sums = groups, sums
        self.undecided = 0

    def forward(self, x: Array, gamma: Array, beta: Array, eps: float) -> tuple[Array, Any]:
        places = prod(x.shape[2:])
        gammas, betas = (
            np.repeat(each.astype(self.sums), places).reshape(self.groups, -1)
            for each in (gamma, beta)
        )
        rows = x.reshape(len(x), self.groups, -1)
        y, calls = np.empty_like(rows), []
        for k in range(self.groups):
            y[:, k], saved = tn.layer_norm_forward(rows[:, k], gammas[k], betas[k], eps=eps)
            calls.append(saved)
        return y.reshape(x.shape), (calls, places)

    def backward(self, dy: Array, kept: tuple[Any, int]) -> tuple[Array, Array, Array]:
        calls, places = kept
        rows = dy.reshape(len(dy), self.groups, -1)
        dx = np.empty_like(rows)
        dgamma: list[np.float32] = []
        dbeta: list[np.float32] = []
        for k, saved in enumerate(calls):
            dx[:, k], *columns = tn.layer_norm_backward(rows[:, k], saved)
            for sums, totals in zip(columns, (dgamma, dbeta), strict=True):
                totals += [self.total(each) for each in np.asarray(sums).reshape(-1, places)]
        return dx.reshape(dy.shape), np.array(dgamma), np.array(dbeta)

    def total(self, sums: Array) -> np.float32:
        """Add up the sums of the places of a channel, of which each was rounded once."""
        if not np.isfinite(sums).all():
            return np.float32(sums.sum())
        total = fsum(sums)
        # Each number is off by at most half a step of float64, and so is their total.
        error = fsum(map(ulp, [*sums, total])) / 2
        self.undecided += np.float32(total - error) != np.float32(total + error)
        return np.float32(total)


def main() -> None:
    """Compare dgamma with totals of sums that were rounded to float32."""
    random = np.random.default_rng(5)
    x, dy = random.normal(3, 2, (2, 5, 12, 7, 7)).astype(np.float32)
    gamma, beta = random.normal(size=(2, 12)).astype(np.float32)
    layers = GroupNorm(4), GroupNorm(4, np.float32)
    results = []
    for layer in layers:
        y, kept = layer.forward(x, gamma, beta, 1e-5)
        results.append((y, *layer.backward(dy, kept)))
    print("undecided sums:", layers[0].undecided)
    names = ("y", "dx", "dgamma", "dbeta")
    for name, wide, narrow in zip(names, *results, strict=True):
        print(f"{name}: sums in float32 change {np.sum(wide != narrow)} of {wide.size}")


if __name__ == "__main__":
    main()
