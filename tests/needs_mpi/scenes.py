"""Scenes of test_mpi.py: ``scenes.py NAME...`` runs them on each rank, and rank 0 prints JSON.

Tests import the inputs and digests from here; only the program imports MPI.
"""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

import truenorm as tn

Array = NDArray[Any]

ROWS, WIDTHS = 41, (5, 16, 7)
SPECIAL = {(3, 0): np.nan, (11, 1): np.inf, (12, 2): -np.inf, (30, 2): np.inf}
"""Entries of dy by row and column; column 2 has infinities of both signs."""

MERGED = ("even", "uneven", "special", "backends")
"""Rows spread evenly; all rows on the last rank; NaN and infinities; different backends."""

DIFFERENT = ("count", "order")
"""Ranks pass partials of different norms."""

WRONG = ("none", "bare", "element", "iterator")
"""Rank 1 passes an argument that makes allreduce raise."""


def data(special: bool) -> list[tuple[Array, Array, Array]]:
    """Return x, dy and gamma of each norm; the magnitude of dy differs from row to row."""
    random = np.random.default_rng(4)
    norms = []
    for k, width in enumerate(WIDTHS):
        x, dy = random.standard_normal((2, ROWS, width))
        dy *= 10.0 ** (3 * k) * 2.0 ** random.integers(-40, 40, (ROWS, 1))
        gamma = random.standard_normal(width).astype(np.float32)
        norms.append((x.astype(np.float32), dy.astype(np.float32), gamma))
        if special:
            for index, value in SPECIAL.items():
                norms[-1][1][index] = value
    return norms


def partials(rows: slice, special: bool, backend: str | None = None) -> list[tn.PartialGradients]:
    """Return the partials of some rows: a layer norm, an RMSNorm and a layer norm."""
    parts = []
    for k, (x, dy, gamma) in enumerate(data(special)):
        if k == 1:
            _, saved = tn.rms_norm_forward(x[rows], gamma, backend=backend)
            parts.append(tn.rms_norm_backward_partial(dy[rows], saved)[1])
        else:
            _, saved = tn.layer_norm_forward(x[rows], gamma, gamma, backend=backend)
            parts.append(tn.layer_norm_backward_partial(dy[rows], saved)[1])
    return parts


def digests(merged: list[tn.PartialGradients]) -> dict[str, Any]:
    """Return hashes of the bytes and of the rounded gradients."""
    rounded = [each.rounded(divide_by=ROWS) for each in merged]
    gradients = [g.tobytes() for each in rounded for g in each[:2] if g is not None]
    return {
        "rows": [each.rows for each in merged],
        "bytes": sha256(b"".join(each.tobytes() for each in merged)).hexdigest(),
        "rounded": sha256(b"".join(gradients)).hexdigest(),
    }


def rows_of_rank(rank: int, ranks: int, uneven: bool) -> slice:
    if uneven:
        return slice(0, ROWS if rank == ranks - 1 else 0)
    return slice(ROWS * rank // ranks, ROWS * (rank + 1) // ranks)


def float32_digest(local: list[tn.PartialGradients], comm: Any, mpi: Any) -> str:
    """Return a digest of the usual all-reduce: float32 gradients of ranks, added in float32."""
    gradients = [g for each in local for g in each.rounded()[:2] if g is not None]
    bucket = np.concatenate(gradients)
    comm.Allreduce(mpi.IN_PLACE, bucket, op=mpi.SUM)
    return sha256(bucket.tobytes()).hexdigest()


def errors_of_allreduce(local: Any, comm: Any, mpi: Any) -> dict[str, Any]:
    """Return the error of each rank, and the result of an all-reduce after it."""
    try:
        tn.ranks.allreduce(local, comm)
    except (TypeError, ValueError, OSError) as error:
        message = f"{type(error).__name__}: {error}"
    else:
        message = ""
    total = np.array([1])
    comm.Allreduce(mpi.IN_PLACE, total, op=mpi.SUM)
    return {"errors": comm.gather(message), "after": int(total[0])}


def failing_iterator(local: list[tn.PartialGradients]) -> Iterator[tn.PartialGradients]:
    yield local[0]
    raise OSError("no disk")


def wrong_argument(name: str, local: list[tn.PartialGradients]) -> Any:
    return {
        "none": None,
        "bare": local[0],
        "element": [local[0], None, local[2]],
        "iterator": failing_iterator(local),
    }[name]


def run_scene(name: str, comm: Any, mpi: Any) -> dict[str, Any]:
    rank, ranks = comm.rank, comm.size
    usable = [each.name for each in tn.backends() if each.usable and each.name != "gpu"]
    backend = usable[rank % len(usable)] if name == "backends" else "reference"
    local = partials(rows_of_rank(rank, ranks, name == "uneven"), name == "special", backend)
    if name == "count":
        return errors_of_allreduce(local[: 3 - rank % 2], comm, mpi)
    if name == "order":
        return errors_of_allreduce(local[:: 1 - 2 * (rank % 2)], comm, mpi)
    if name in WRONG:
        argument = wrong_argument(name, local) if rank == 1 else local
        return errors_of_allreduce(argument, comm, mpi)
    merged = digests(tn.ranks.allreduce(local, comm))
    assert all(each == merged for each in comm.allgather(merged))
    assert tn.ranks.allreduce([], comm) == []
    return merged | {"float32": float32_digest(local, comm, mpi)}


def main() -> None:
    from mpi4py import MPI

    results = {name: run_scene(name, MPI.COMM_WORLD, MPI) for name in sys.argv[1:]}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(results))  # noqa: T201


if __name__ == "__main__":
    main()
