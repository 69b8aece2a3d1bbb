"""Gradients of three norms over a batch that is spread over ranks: the same bytes on any number.

``mpiexec -n 3 python examples/ranks/mpi_allreduce.py``; it needs mpi4py. `torch_allreduce.py` does
the same by torch.distributed, and prints the same digests.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

ROWS = 96
WIDTHS = {"first": 24, "second": 40, "last": 24}


def partials_of(rank: int, ranks: int) -> list[tn.PartialGradients]:
    """Return what a rank's share of the rows adds to the gradients of each norm."""
    mine = slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)
    random = np.random.default_rng(18)
    found = []
    for width in WIDTHS.values():
        x, dy = random.standard_normal((2, ROWS, width)).astype(np.float32)
        gamma, beta = np.ones(width, np.float32), np.zeros(width, np.float32)
        _, saved = tn.layer_norm_forward(x[mine], gamma, beta)
        _, partial = tn.layer_norm_backward_partial(dy[mine], saved)
        found.append(partial)
    return found


def report(ranks: int, merged: list[tn.PartialGradients], plain: NDArray[Any]) -> None:
    """Print digests: of the partials, of what they round to, and of sums in float32."""
    rounded = [each.rounded(divide_by=ROWS) for each in merged]
    gradients = b"".join(np.stack(each[:2]).tobytes() for each in rounded)  # type: ignore[arg-type]
    found = {
        "partials": b"".join(each.tobytes() for each in merged),
        "rounded": gradients,
        "float32": plain.tobytes(),
    }
    digests = (f"{name} {sha256(each).hexdigest()[:16]}" for name, each in found.items())
    print(f"ranks {ranks}:", ", ".join(digests), flush=True)


def rounded_first(partials: list[tn.PartialGradients]) -> NDArray[Any]:
    """Return what is usually sent: the sums of each rank, rounded to float32."""
    return np.concatenate([np.stack(each.rounded()[:2]).ravel() for each in partials])  # type: ignore[arg-type]


def main() -> None:
    """Merge by MPI."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    mine = partials_of(comm.rank, comm.size)
    merged = tn.ranks.allreduce(mine, comm)
    plain = rounded_first(mine)
    comm.Allreduce(MPI.IN_PLACE, plain, op=MPI.SUM)
    if comm.rank == 0:
        report(comm.size, merged, plain)


if __name__ == "__main__":
    main()
