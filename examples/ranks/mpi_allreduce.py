"""Gradients of three norms over a batch on several ranks: the same bytes for any number.

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
    """Return the partials of the rows of a rank, one for each norm."""
    mine = slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)
    random = np.random.default_rng(18)
    partials = []
    for width in WIDTHS.values():
        x, dy = random.standard_normal((2, ROWS, width)).astype(np.float32)
        gamma, beta = np.ones(width, np.float32), np.zeros(width, np.float32)
        _, saved = tn.layer_norm_forward(x[mine], gamma, beta)
        _, partial = tn.layer_norm_backward_partial(dy[mine], saved)
        partials.append(partial)
    return partials


def report(ranks: int, merged: list[tn.PartialGradients], plain: NDArray[Any]) -> None:
    """Print digests of the partials, of their rounded gradients, and of sums in float32."""
    rounded = [each.rounded(divide_by=ROWS) for each in merged]
    gradients = b"".join(np.stack(each[:2]).tobytes() for each in rounded)  # type: ignore[arg-type]
    contents = {
        "partials": b"".join(each.tobytes() for each in merged),
        "rounded": gradients,
        "float32": plain.tobytes(),
    }
    digests = (f"{name} {sha256(each).hexdigest()[:16]}" for name, each in contents.items())
    print(f"ranks {ranks}:", ", ".join(digests), flush=True)


def rounded_first(partials: list[tn.PartialGradients]) -> NDArray[Any]:
    """Return the usual input of an all-reduce: the sums of each rank, rounded to float32."""
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
