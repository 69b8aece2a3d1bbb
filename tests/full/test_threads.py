"""Threads: blocks, errors, the number of threads, interrupts and forked processes."""

import gc
import os
import signal
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from shared.programs import run_python
from truenorm import threads
from truenorm.threads import for_each_block, thread_count

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

    def test_as_many_threads_as_requested(self, pool: threads._Pool) -> None:
        """Or as blocks. The calling one takes part, and the pool grows but never begins anew."""
        for count, most, workers in [(2, 2, 1), (3, 50, 2), (8, 8, 7), (3, 3, 7)]:
            names = names_at_work(count, most)
            assert len(names) == count
            assert threading.current_thread().name in names
            assert pool.workers == workers

    def test_no_more_threads_than_requested(self) -> None:
        names_at_work(8)
        names = set()

        def work(_start: int, _stop: int) -> None:
            names.add(threading.current_thread().name)
            time.sleep(0.01)

        for_each_block(work, blocks_of(20), 3)
        assert len(names) <= 3

    def test_a_free_thread_takes_the_next_block(self) -> None:
        last = threading.Event()

        def work(start: int, _stop: int) -> None:
            if start == 0:
                assert last.wait(SECONDS)
            elif start == 9:
                last.set()

        for_each_block(work, blocks_of(10), 2)

    def test_two_callers_that_need_the_first_thread(
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
        assert pool.workers == 1

    def test_inside_each_other(self) -> None:
        innermost: list[tuple[int, int]] = []
        both = threading.Barrier(2, timeout=SECONDS)

        def outer(_start: int, _stop: int) -> None:
            both.wait()  # one of them is in the pool
            for_each_block(lambda *_: innermost.extend(done(4, 2)), blocks_of(3), 3)

        in_time(lambda: for_each_block(outer, blocks_of(2), 2))
        assert sorted(innermost) == sorted(blocks_of(4) * 6)

    def test_called_while_holding_the_lock(self, pool: threads._Pool) -> None:
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
        assert pool.workers == 1
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
        """No thread begins another block, those begun are waited for, and the pool goes on."""
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

    @pytest.mark.parametrize("error", [RuntimeError, MemoryError])
    def test_no_thread_can_be_started(
        self, pool: threads._Pool, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        monkeypatch.setattr(threads, "start_new_thread", Mock(side_effect=error))
        assert done(3, 2) == blocks_of(3)
        assert pool.inbox.empty()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pretend to have 64 CPUs and no cgroups."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(threads, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(threads, "CGROUPS", tmp_path)
    threads._usable_cpus.cache_clear()
    yield
    threads._usable_cpus.cache_clear()


VARIABLE = {"3": 3, " 100 ": 100, "5,2": 5}
SAYS_NOTHING = dict.fromkeys(["", "0", "-2", "two", "1.5", ",4", "9" * 25, "9" * 5000], 64)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of a process")
def test_a_thread_dies_while_it_starts() -> None:
    """Its stack fits into the memory that is left, and the objects of its first calls do not."""
    code = """
        import resource
        failed = 0
        for beyond in range(0, 2**17, 2**12):
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                signal.alarm(5)
                pages = int(open("/proc/self/statm").read().split()[0])
                stack = resource.getrlimit(resource.RLIMIT_STACK)[0] % 2**40
                limit = pages * resource.getpagesize() + stack + beyond
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                for_each_block(lambda start, stop: None, two, 2)
                os._exit(0)
            failed += os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM
            if failed:
                break
        print(failed)
    """
    assert run(code) == ["0"]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("value", "count"), (VARIABLE | SAYS_NOTHING).items())
def test_variable(monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert thread_count(None) == count
    assert thread_count(200) == 200


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(("cpus", "count"), [(6, 6), (None, 1)])
def test_where_affinity_is_unknown(
    monkeypatch: pytest.MonkeyPatch, cpus: int | None, count: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert thread_count(None) == count


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("membership", "files", "count"),
    [
        # In its own group, in one above, at the root; the smallest counts.
        ("0::/a/b", {"a/b": "150000 100000\n"}, 2),
        ("0::/a/b", {"a/b": "max 100000", "a": "300000 100000"}, 3),
        ("0::/", {"": "200000 100000"}, 2),
        ("0::/a", {"a": "400000 100000", "": "350001 50000"}, 4),
        ("0::/a", {"a": "6500000 100000"}, 64),
        ("0::/of/the/host", {"": "500000 100000"}, 5),
        ("0::/a\n4:cpu,cpuacct:/b", {"a": "500000 100000", "b": "200000 100000"}, 5),
        # At least one
        ("0::/", {"": "1000 100000"}, 1),
        ("0::/", {"": "0 100000"}, 1),
        # What says nothing
        ("0::/", {"": "max 100000"}, 64),
        ("0::/", {"": "1 2 3"}, 64),
        ("0::/", {"": "100000 0"}, 64),
        ("0::/", {"": "\udcff"}, 64),
        ("\udcff", {}, 64),
    ],
)
def test_quotas(tmp_path: Path, membership: str, files: dict[str, str], count: int) -> None:
    texts = {f"{group}/cpu.max".lstrip("/"): text for group, text in files.items()}
    for name, text in {"membership": membership, **texts}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    assert thread_count(None) == count


@pytest.mark.usefixtures("machine")
def test_the_machine_is_read_once(tmp_path: Path) -> None:
    assert thread_count(None) == 64
    (tmp_path / "cpu.max").write_text("100000 100000")
    assert thread_count(None) == 64


PRELUDE = """
    import atexit, os, random, signal, sys, threading, time, warnings
    from truenorm import threads
    from truenorm.threads import for_each_block

    # Of a shell's background job, children ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    me = threading.main_thread()
    two, three = [(0, 1), (1, 2)], [(0, 1), (1, 2), (2, 3)]

    def together(count):
        everyone = threading.Barrier(count, timeout=5)
        for_each_block(lambda *_: everyone.wait(), [(0, 1)] * count, count)
"""


def run(code: str, *arguments: str) -> list[str]:
    return run_python(textwrap.dedent(PRELUDE) + textwrap.dedent(code), *arguments, seconds=20)


def test_import_loads_little_and_starts_no_thread() -> None:
    assert run("print('numpy' in sys.modules, threading.active_count())") == ["False 1"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="sends signals to a thread")
class TestInterrupts:
    """Each program interrupts its main thread, and prints what happened in which order."""

    @pytest.mark.parametrize(
        ("at_work", "waiting", "failing"), [(1, 0, "fails"), (0, 1, ""), (0, 3, "fails")]
    )
    def test_wait_for_helpers(self, at_work: int, waiting: int, failing: str) -> None:
        """They outrank an error of another helper, even one that was there before."""
        code = """
            at_work, waiting, failing = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
            everyone = threading.Barrier(3, timeout=5)
            roles = iter(["fails", "works"])

            def work(start, stop):
                role = "calls" if threading.current_thread() is me else next(roles)
                everyone.wait()
                if role == "calls":
                    for _ in range(at_work):
                        time.sleep(0.05)
                        signal.raise_signal(signal.SIGINT)
                elif role == failing:
                    raise ValueError
                elif role == "works":
                    for _ in range(waiting):
                        time.sleep(0.05)
                        signal.pthread_kill(me.ident, signal.SIGINT)
                    time.sleep(0.2)
                    print("helper", flush=True)

            try:
                for_each_block(work, three, 3)
            except KeyboardInterrupt:
                print("interrupt")
            together(3)
            print(threads._pool.workers)
        """
        printed = run(code, str(at_work), str(waiting), failing)
        assert printed == ["helper", "interrupt", "2"]

    def test_at_any_time(self) -> None:
        """Two within microseconds: more than a user, or a user and a launcher, can send."""
        code = """
            draw = random.Random(0)
            began, ended = [], []
            interrupts = left = 0

            def handler(*_):
                global left
                if left:
                    left -= 1
                    signal.setitimer(signal.ITIMER_REAL, again)
                    raise KeyboardInterrupt

            def work(start, stop):
                if threading.current_thread() is me:
                    time.sleep(1e-5)
                else:
                    began.append(start)
                    time.sleep(2e-4)
                    ended.append(start)

            signal.signal(signal.SIGALRM, handler)
            together(3)
            for _ in range(500):
                try:
                    try:
                        left = 2
                        again = draw.uniform(1e-6, 3e-5)
                        signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 1e-3))
                        for_each_block(work, [(k, k + 1) for k in range(6)], 3)
                        left = 0
                    except KeyboardInterrupt:
                        unfinished = len(began) - len(ended)
                        left = 0
                        interrupts += 1
                        assert not unfinished
                except KeyboardInterrupt:
                    left = 0  # the second one came when the call was over
            signal.setitimer(signal.ITIMER_REAL, 0)
            together(3)
            print(interrupts > 50)
        """
        assert run(code) == ["True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("parent", ["idle", "busy", "locked"])
def test_a_forked_child_has_its_own_pool(parent: str) -> None:
    code = """
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of what we try
        begun, release = threading.Semaphore(0), threading.Event()
        parent = os.getpid()

        def busy(start, stop):
            if os.getpid() != parent:
                os._exit(100)  # the child does the work of its parent
            begun.release()
            release.wait()

        def locked():
            with threads._pool.lock:
                busy(0, 1)

        together(2)
        if sys.argv[1] == "busy":
            # Two callers and one worker; the test expects it at blocks that no thread began.
            for blocks in two, two:
                threading.Thread(target=for_each_block, args=(busy, blocks, 2)).start()
            for _ in range(3):
                begun.acquire()
        elif sys.argv[1] == "locked":
            threading.Thread(target=locked).start()
            begun.acquire()
        child = os.fork()
        if not child:
            signal.alarm(10)
            together(2)
            together(3)
            os._exit(threads._pool.workers)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        release.set()
        together(2)
    """
    assert run(code, parent) == ["2"]


@pytest.mark.parametrize("used", ["used before", ""])
@pytest.mark.parametrize("when", ["atexit", "thread", "finalizing"])
def test_the_interpreter_exits(when: str, used: str) -> None:
    """From Python 3.12 on no thread can be started any more; 3.11 would wait for it."""
    code = """
        def late(call=for_each_block, wait=0.2):
            done = []
            time.sleep(wait)
            call(lambda start, _: done.append(start), [(0, 1), (1, 2)], 2)
            print(sorted(done))

        class Late:
            def __del__(self, late=late):
                late(wait=0)

        if sys.argv[2]:
            together(2)
        if sys.argv[1] == "atexit":
            atexit.register(late)
        elif sys.argv[1] == "thread":
            threading.Thread(target=late).start()
        else:
            instance = Late()
    """
    assert run(code, when, used) == ["[0, 1]"]
