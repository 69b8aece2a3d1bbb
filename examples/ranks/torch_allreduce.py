"""Merge partials with torch.distributed: int64, MAX and then SUM.

``python examples/ranks/torch_allreduce.py 3`` starts three processes with gloo; with "nccl" the
tensors are on the device. It prints the digests of `mpi_allreduce.py`.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
import torch.multiprocessing as mp  # type: ignore[import-not-found]
from mpi_allreduce import partials_of, report, rounded_first

import truenorm as tn


def all_reduce(partials: Sequence[tn.PartialGradients]) -> list[tn.PartialGradients]:
    """Merge the partials of all processes, which pass the same norms in the same order."""
    extents = torch.from_numpy(np.stack([each.extent() for each in partials]))
    dist.all_reduce(extents, op=dist.ReduceOp.MAX)
    agreed = list(extents.numpy())
    words = [each.to_words(extent) for each, extent in zip(partials, agreed, strict=True)]
    bucket = torch.from_numpy(np.concatenate(words))
    dist.all_reduce(bucket, op=dist.ReduceOp.SUM)
    parts = np.split(bucket.numpy(), np.cumsum([len(each) for each in words])[:-1])
    return [
        each.from_words(part, extent)
        for each, part, extent in zip(partials, parts, agreed, strict=True)
    ]


def work(rank: int, ranks: int, meeting: str) -> None:
    """Run one process."""
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    mine = partials_of(rank, ranks)
    merged = all_reduce(mine)
    plain = torch.from_numpy(rounded_first(mine))
    dist.all_reduce(plain)
    if rank == 0:
        report(ranks, merged, plain.numpy())
    dist.destroy_process_group()


def main(ranks: int) -> None:
    """Start the processes, and wait for them."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = (Path(folder).resolve() / "meeting").as_uri()
        mp.spawn(work, args=(ranks, meeting), nprocs=ranks)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
