"""Who works on which blocks, and what happens when one fails."""

import gc
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from unittest.mock import Mock

import pytest

from truenorm import threads
from truenorm.threads import for_each_block

SECONDS = 10  # what would deadlock fails after this time


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> threads._Pool:
    """Give the test a pool without threads."""
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    return threads._pool


def blocks_of(count: int) -> list[tuple[int, int]]:
    return [(k, k + 1) for k in range(count)]


def done(count: int, most: int) -> list[tuple[int, int]]:
    """Return blocks in the order in which they were done."""
    order: list[tuple[int, int]] = []
    for_each_block(lambda start, stop: order.append((start, stop)), blocks_of(count), most)
    return order


def role() -> str:
    return "helper" if threading.current_thread().daemon else "caller"


def names_at_work(count: int, most: int = 100) -> set[str]:
    """Name the threads of a call that gets nowhere without `count` of them at the same time."""
    names = set()
    everyone = threading.Barrier(count, timeout=SECONDS)

    def work(_start: int, _stop: int) -> None:
        names.add(threading.current_thread().name)
        everyone.wait()

    for_each_block(work, blocks_of(count), most)
    return names


def in_time(function: Callable[[], object]) -> None:
    """Call a function that may hang."""
    ended = []
    thread = threading.Thread(target=lambda: ended.append(function()), daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert len(ended) == 1


class TestBlocks:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 200])
    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_each_once(self, count: int, most: int) -> None:
        assert sorted(done(count, most)) == blocks_of(count)

    @pytest.mark.parametrize(("count", "most"), [(5, 1), (5, 0), (1, 8), (0, 8)])
    def test_without_the_pool(
        self, monkeypatch: pytest.MonkeyPatch, count: int, most: int
    ) -> None:
        monkeypatch.setattr(threads, "_pool", None)
        assert done(count, most) == blocks_of(count)

    def test_as_many_threads_as_asked_for(self, pool: threads._Pool) -> None:
        """Or as blocks. The calling one takes part, and the pool grows but never begins anew."""
        for count, most, workers in [(2, 2, 1), (3, 50, 2), (8, 8, 7), (3, 3, 7)]:
            names = names_at_work(count, most)
            assert len(names) == count
            assert threading.current_thread().name in names
            assert len(pool.workers) == workers

    def test_no_more_than_asked_for(self) -> None:
        names_at_work(8)
        names = set()

        def work(_start: int, _stop: int) -> None:
            names.add(threading.current_thread().name)
            time.sleep(0.01)

        for_each_block(work, blocks_of(20), 3)
        assert len(names) <= 3

    def test_who_is_free_takes_the_next(self) -> None:
        last = threading.Event()

        def work(start: int, _stop: int) -> None:
            if start == 0:
                assert last.wait(SECONDS)
            elif start == 9:
                last.set()

        for_each_block(work, blocks_of(10), 2)

    def test_callers_who_both_need_the_first_thread(
        self, pool: threads._Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        both = threading.Barrier(2, timeout=SECONDS)
        start = threading.Thread.start

        def slow_start(thread: threading.Thread) -> None:
            if thread.name.startswith("truenorm"):
                time.sleep(0.1)
            start(thread)

        def call() -> None:
            both.wait()
            done(2, 2)

        monkeypatch.setattr(threading.Thread, "start", slow_start)
        other = threading.Thread(target=call)
        other.start()
        call()
        other.join()
        assert len(pool.workers) == 1

    def test_inside_each_other(self) -> None:
        innermost: list[tuple[int, int]] = []
        both = threading.Barrier(2, timeout=SECONDS)

        def outer(_start: int, _stop: int) -> None:
            both.wait()  # one of them is in the pool
            for_each_block(lambda *_: innermost.extend(done(4, 2)), blocks_of(3), 3)

        in_time(lambda: for_each_block(outer, blocks_of(2), 2))
        assert sorted(innermost) == sorted(blocks_of(4) * 6)

    def test_called_by_who_holds_the_lock(self, pool: threads._Pool) -> None:
        """As a signal handler can do."""

        def call() -> None:
            with pool.lock:
                done(2, 2)

        in_time(call)


class TestBusyPool:
    @pytest.fixture(autouse=True)
    def busy(self, pool: threads._Pool) -> Iterator[None]:
        """Keep the only worker busy with another call."""
        release = threading.Event()
        everyone = threading.Barrier(3, timeout=SECONDS)

        def work(_start: int, _stop: int) -> None:
            everyone.wait()
            release.wait(SECONDS)

        caller = threading.Thread(target=for_each_block, args=(work, blocks_of(2), 2))
        caller.start()
        everyone.wait()
        assert len(pool.workers) == 1
        yield
        release.set()
        caller.join()

    def test_the_caller_works_alone(self, pool: threads._Pool) -> None:
        """At once; and what still waits for the worker keeps no arrays alive."""

        def work(_start: int, _stop: int) -> None:
            assert role() == "caller"

        gone = weakref.ref(work)
        before = time.monotonic()
        for_each_block(work, blocks_of(3), 2)
        assert time.monotonic() - before < SECONDS / 2
        assert pool.inbox.qsize() == 1
        del work
        assert gone() is None

    def test_not_all_calls_wait(
        self, pool: threads._Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threads, "QUEUE_LIMIT", 10)
        for _ in range(100):
            done(2, 2)
        assert pool.inbox.qsize() == 10


class BlockError(Exception):
    """May be referred to weakly."""


class TestErrors:
    @pytest.mark.parametrize("kind", [BlockError, SystemExit])
    @pytest.mark.parametrize("failing", ["helper", "caller"])
    def test_of_one_thread(self, failing: str, kind: type[BaseException]) -> None:
        """Nobody begins another block, those begun are waited for, and the pool goes on."""
        both = threading.Barrier(2, timeout=SECONDS)
        began, ended = [], []

        def work(_start: int, _stop: int) -> None:
            began.append(role())
            both.wait()
            if role() == failing:
                raise kind
            time.sleep(0.2)  # in which the other one would begin another
            ended.append(role())

        with pytest.raises(kind) as caught:
            for_each_block(work, blocks_of(100), 2)
        assert len(ended) == 1
        assert sorted(began) == ["caller", "helper"]
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "work"
        assert len(names_at_work(2)) == 2

    @pytest.mark.parametrize("first", ["helper", "caller"])
    def test_the_first_of_two_without_cycles(self, first: str) -> None:
        """They keep the arrays of their frames alive, but not each other or themselves."""
        both = threading.Barrier(2, timeout=SECONDS)
        gone = []

        def work(_start: int, _stop: int) -> None:
            both.wait()
            time.sleep(0.0 if role() == first else 0.1)
            error = BlockError(role())
            gone.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error

        gc.disable()
        try:
            for_each_block(work, blocks_of(2), 2)
        except BlockError as error:
            raised = str(error)
        finally:
            gc.enable()
        assert raised == first
        assert [error() for error in gone] == [None, None]

    def test_no_thread_can_be_started(
        self, pool: threads._Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError))
        assert done(3, 2) == blocks_of(3)
        assert pool.inbox.empty()
