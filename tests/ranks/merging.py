"""What each rank does in test_allreduce.py: ``merging.py SCENE...``; rank 0 prints JSON."""

import json
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
from mpi4py import MPI

import truenorm as tn
from ranks.rows import WRONG, digests, partials, share


def plain(found: list[tn.PartialGradients], comm: Any) -> str:
    """Return a digest of the usual: sums of ranks in float32, added by MPI in float32."""
    sums = [g for each in found for g in each.rounded()[:2] if g is not None]
    bucket = np.concatenate(sums)
    comm.Allreduce(MPI.IN_PLACE, bucket, op=MPI.SUM)
    return sha256(bucket.tobytes()).hexdigest()


def refused(mine: Any, comm: Any) -> dict[str, Any]:
    """Return the error of each rank, and check that the ranks can go on."""
    try:
        tn.ranks.allreduce(mine, comm)
    except (TypeError, ValueError, OSError) as error:
        message = f"{type(error).__name__}: {error}"
    else:
        message = ""
    total = np.array([1])
    comm.Allreduce(MPI.IN_PLACE, total, op=MPI.SUM)
    return {"errors": comm.gather(message), "after": int(total[0])}


def broken(mine: list[tn.PartialGradients]) -> Iterator[tn.PartialGradients]:
    """Yield a partial, then fail as a file would."""
    yield mine[0]
    raise OSError("no disk")


def wrong(name: str, mine: list[tn.PartialGradients]) -> Any:
    """Return an argument that allreduce refuses on the rank that passes it."""
    return {
        "none": None,
        "bare": mine[0],
        "element": [mine[0], None, mine[2]],
        "iterator": broken(mine),
    }[name]


def scene(name: str, comm: Any) -> dict[str, Any]:
    """Do one."""
    rank, ranks = comm.rank, comm.size
    usable = [each.name for each in tn.backends() if each.usable and each.name != "gpu"]
    backend = usable[rank % len(usable)] if name == "backends" else "reference"
    mine = partials(share(rank, ranks, name == "uneven"), name == "special", backend)
    if name == "count":
        return refused(mine[: 3 - rank % 2], comm)
    if name == "order":
        return refused(mine[:: 1 - 2 * (rank % 2)], comm)
    if name in WRONG:
        return refused(wrong(name, mine) if rank == 1 else mine, comm)
    found = digests(tn.ranks.allreduce(mine, comm))
    everywhere = comm.allgather(found)
    assert all(each == found for each in everywhere)
    assert tn.ranks.allreduce([], comm) == []
    return found | {"plain": plain(mine, comm)}


if __name__ == "__main__":
    results = {name: scene(name, MPI.COMM_WORLD) for name in sys.argv[1:]}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(results))  # noqa: T201
