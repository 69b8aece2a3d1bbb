"""The rows that ranks share out, and what is compared of their partials."""

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

Array = NDArray[Any]

ROWS, WIDTHS = 41, (5, 16, 7)
SPECIAL = {(3, 0): np.nan, (11, 1): np.inf, (12, 2): -np.inf, (30, 2): np.inf}
"""Of dy, by row and column: in the last of these columns infinities of both signs."""

WRONG = ("none", "bare", "element", "iterator")
"""Scenes in which rank 1 passes an argument that allreduce refuses."""


def data(special: bool) -> list[tuple[Array, Array, Array]]:
    """Return x, dy and gamma of each norm; sizes of rows differ by powers of two and of ten."""
    random = np.random.default_rng(4)
    found = []
    for k, width in enumerate(WIDTHS):
        x, dy = random.standard_normal((2, ROWS, width))
        dy *= 10.0 ** (3 * k) * 2.0 ** random.integers(-40, 40, (ROWS, 1))
        gamma = random.standard_normal(width).astype(np.float32)
        found.append((x.astype(np.float32), dy.astype(np.float32), gamma))
        if special:
            for place, value in SPECIAL.items():
                found[-1][1][place] = value
    return found


def partials(rows: slice, special: bool, backend: str | None = None) -> list[tn.PartialGradients]:
    """Return what some rows add to each norm: two layer norms, and an RMSNorm."""
    found = []
    for k, (x, dy, gamma) in enumerate(data(special)):
        if k == 1:
            _, saved = tn.rms_norm_forward(x[rows], gamma, backend=backend)
            found.append(tn.rms_norm_backward_partial(dy[rows], saved)[1])
        else:
            _, saved = tn.layer_norm_forward(x[rows], gamma, gamma, backend=backend)
            found.append(tn.layer_norm_backward_partial(dy[rows], saved)[1])
    return found


def share(rank: int, ranks: int, uneven: bool) -> slice:
    """Return the rows of a rank: as many for each, or all for the last."""
    if uneven:
        return slice(0, ROWS if rank == ranks - 1 else 0)
    return slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)


def digests(found: list[tn.PartialGradients]) -> dict[str, Any]:
    """Return what is compared."""
    rounded = [each.rounded(divide_by=ROWS) for each in found]
    gradients = [g.tobytes() for each in rounded for g in each[:2] if g is not None]
    return {
        "rows": [each.rows for each in found],
        "bytes": sha256(b"".join(each.tobytes() for each in found)).hexdigest(),
        "rounded": sha256(b"".join(gradients)).hexdigest(),
    }
