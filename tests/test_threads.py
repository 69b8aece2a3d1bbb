"""How many threads there are, and what they do when blocks fail, users interrupt or all ends."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

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


def names_at_work(count: int) -> set[str]:
    """Name the threads of a call that gets nowhere without `count` of them at the same time."""
    names = set()
    everyone = threading.Barrier(count, timeout=SECONDS)

    def work(_start: int, _stop: int) -> None:
        names.add(threading.current_thread().name)
        everyone.wait()

    for_each_block(work, blocks_of(count), count)
    return names


def in_time(function: Callable[[], object]) -> None:
    """Call a function that may hang."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert not errors


class TestThreadCount:
    @pytest.fixture(autouse=True)
    def machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Pretend to have 64 CPUs and no cgroups."""
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
        monkeypatch.setattr(os, "cpu_count", lambda: 128)
        monkeypatch.setattr(threads, "MEMBERSHIP", tmp_path / "membership")
        monkeypatch.setattr(threads, "CGROUPS", tmp_path)
        threads._usable_cpus.cache_clear()
        yield
        threads._usable_cpus.cache_clear()

    def test_what_was_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        assert thread_count(200) == 200

    @pytest.mark.parametrize(("value", "count"), [("3", 3), (" 100 ", 100), ("5,2", 5)])
    def test_variable(self, monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert thread_count(None) == count

    @pytest.mark.parametrize("value", ["", "0", "-2", "two", "1.5", ",4"])
    def test_variable_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert thread_count(None) == 64

    @pytest.mark.parametrize(("cpus", "count"), [(6, 6), (None, 1)])
    def test_where_affinity_is_unknown(
        self, monkeypatch: pytest.MonkeyPatch, cpus: int | None, count: int
    ) -> None:
        monkeypatch.delattr(os, "sched_getaffinity")
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
        assert thread_count(None) == count

    def test_the_machine_is_asked_once(self, tmp_path: Path) -> None:
        (tmp_path / "membership").write_text("0::/")
        assert thread_count(None) == 64
        (tmp_path / "cpu.max").write_text("100000 100000")
        assert thread_count(None) == 64

    @pytest.mark.parametrize(
        ("membership", "files", "count"),
        [
            # Version 2: in its own group, its parent, the root; the smallest counts.
            ("0::/a/b", {"a/b/cpu.max": "150000 100000\n"}, 2),
            ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3),
            ("0::/", {"cpu.max": "200000 100000"}, 2),
            ("0::/a", {"a/cpu.max": "400000 100000", "cpu.max": "350001 50000"}, 4),
            ("0::/a", {"a/cpu.max": "6500000 100000"}, 64),
            ("0::/of/the/host", {"cpu.max": "500000 100000"}, 5),
            ("1:name=systemd:/\n0::/a", {"unified/a/cpu.max": "500000 100000"}, 5),
            # Version 1
            ("4:cpu,cpuacct:/a", {"cpu,cpuacct/a": "250000 100000"}, 3),
            ("4:cpuacct,cpu:/a", {"cpu/a": "250000 100000"}, 3),
            ("2:pids:/b\n4:cpu:/a:b\n0::/", {"cpu/a:b": "-1 100000", "cpu": "20000 10000"}, 2),
            ("4:cpuset:/a", {"cpu/a": "250000 100000"}, 64),
            # At least one
            ("0::/", {"cpu.max": "1000 100000"}, 1),
            ("0::/", {"cpu.max": "0 100000"}, 1),
            # What says nothing
            ("0::/", {"cpu.max": "max 100000"}, 64),
            ("0::/", {"cpu.max": "some"}, 64),
            ("0::/", {"cpu.max": "1 2 3"}, 64),
            ("0::/", {"cpu.max": "100000 0"}, 64),
            ("0::/", {"cpu.max": "\udcff"}, 64),
            ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "100000"}, 64),
            ("", {"cpu.max": "100000 100000"}, 64),
            ("\udcff", {"cpu.max": "100000 100000"}, 64),
            ("no colon", {}, 64),
        ],
    )
    def test_quotas(
        self, tmp_path: Path, membership: str, files: dict[str, str], count: int
    ) -> None:
        assert thread_count(None) == 64
        threads._usable_cpus.cache_clear()
        for name, text in {"membership": membership, **files}.items():
            path = tmp_path / name
            if name == "membership" or "cpu." in name:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode(errors="surrogateescape"))
            else:
                path.mkdir(parents=True, exist_ok=True)
                quota, period = text.split()
                (path / "cpu.cfs_quota_us").write_text(quota + "\n")
                (path / "cpu.cfs_period_us").write_text(period + "\n")
        assert thread_count(None) == count


class TestBlocks:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 200])
    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_each_once(self, count: int, most: int) -> None:
        done: list[tuple[int, int]] = []
        for_each_block(lambda start, stop: done.append((start, stop)), blocks_of(count), most)
        assert sorted(done) == blocks_of(count)

    @pytest.mark.parametrize(("count", "most"), [(5, 1), (5, 0), (1, 8), (0, 8)])
    def test_without_the_pool(
        self, monkeypatch: pytest.MonkeyPatch, count: int, most: int
    ) -> None:
        monkeypatch.setattr(threads, "_pool", None)
        done = []
        for_each_block(
            lambda start, _: done.append((start, threading.get_ident())), blocks_of(count), most
        )
        assert done == [(k, threading.get_ident()) for k in range(count)]

    def test_as_many_threads_as_asked_for(self, pool: threads._Pool) -> None:
        """The calling one takes part, and the pool grows but does not begin anew."""
        me = threading.current_thread().name
        for count, workers in [(2, 1), (8, 7), (3, 7), (8, 7)]:
            names = names_at_work(count)
            assert len(names) == count
            assert me in names
            assert all(name.startswith("truenorm") for name in names - {me})
            assert len(pool.workers) == workers

    def test_no_more_threads_than_blocks(self, pool: threads._Pool) -> None:
        for_each_block(lambda *_: None, blocks_of(3), 50)
        assert len(pool.workers) == 2

    def test_no_more_than_asked_for(self, pool: threads._Pool) -> None:
        names_at_work(8)
        names = set()

        def work(_start: int, _stop: int) -> None:
            names.add(threading.current_thread().name)
            time.sleep(0.01)

        for_each_block(work, blocks_of(20), 3)
        assert len(names) <= 3
        assert len(pool.workers) == 7

    def test_who_is_free_takes_the_next(self) -> None:
        last = threading.Event()

        def work(start: int, _stop: int) -> None:
            if start == 0:
                assert last.wait(SECONDS)
            elif start == 9:
                last.set()

        for_each_block(work, blocks_of(10), 2)

    def test_slow_sequence(self) -> None:
        """Even so each block is handed out once."""

        class Slow(Sequence[tuple[int, int]]):
            def __len__(self) -> int:
                return 10

            def __getitem__(self, k: Any) -> Any:
                time.sleep(0.001)
                return blocks_of(10)[k]

        done: list[int] = []
        for_each_block(lambda start, _: done.append(start), Slow(), 4)
        assert sorted(done) == [*range(10)]

    def test_callers_that_need_the_first_thread_at_once(
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
            for_each_block(lambda *_: None, blocks_of(2), 2)

        monkeypatch.setattr(threading.Thread, "start", slow_start)
        other = threading.Thread(target=call)
        other.start()
        call()
        other.join()
        assert len(pool.workers) == 1

    def test_many_callers(self) -> None:
        done: list[int] = []

        def call(most: int) -> None:
            for _ in range(50):
                for_each_block(lambda start, _: done.append(start), blocks_of(10), most)

        callers = [threading.Thread(target=call, args=(most,)) for most in range(1, 7)]
        for caller in callers:
            caller.start()
        for caller in callers:
            in_time(caller.join)
        assert sorted(done) == sorted([*range(10)] * 6 * 50)

    def test_inside_each_other(self) -> None:
        done: list[int] = []
        both = threading.Barrier(2, timeout=SECONDS)

        def outer(_start: int, _stop: int) -> None:
            both.wait()  # one of them is in the pool
            for_each_block(middle, blocks_of(3), 3)

        def middle(_start: int, _stop: int) -> None:
            for_each_block(lambda start, _: done.append(start), blocks_of(4), 2)

        in_time(lambda: for_each_block(outer, blocks_of(2), 2))
        assert sorted(done) == sorted([*range(4)] * 6)

    def test_called_by_who_holds_the_lock(self, pool: threads._Pool) -> None:
        """As a signal handler can do."""

        def call() -> None:
            with pool.lock:
                names_at_work(2)

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
        yield
        release.set()
        caller.join()
        while not pool.inbox.empty():
            time.sleep(0.001)
        assert len(pool.workers) == 1

    def test_the_caller_works_alone(self) -> None:
        done: list[tuple[int, str]] = []

        def work(start: int, _stop: int) -> None:
            done.append((start, threading.current_thread().name))

        before = time.monotonic()
        for_each_block(work, blocks_of(3), 2)
        assert time.monotonic() - before < SECONDS / 2
        assert done == [(k, threading.current_thread().name) for k in range(3)]

    def test_what_waits_keeps_no_arrays(self, pool: threads._Pool) -> None:
        class Work:
            def __call__(self, start: int, stop: int) -> None:
                pass

        work = Work()
        gone = weakref.ref(work)
        for_each_block(work, blocks_of(2), 2)
        assert pool.inbox.qsize() == 1
        del work
        assert gone() is None

    def test_not_all_calls_wait(
        self, pool: threads._Pool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(threads, "CROWDED", 10)
        for _ in range(100):
            for_each_block(lambda *_: None, blocks_of(2), 2)
        assert pool.inbox.qsize() == 10


class BlockError(Exception):
    """May be referred to weakly."""


class TestErrors:
    @pytest.mark.parametrize("kind", [BlockError, SystemExit])
    @pytest.mark.parametrize("failing", ["helper", "caller"])
    def test_of_one_thread(
        self, pool: threads._Pool, failing: str, kind: type[BaseException]
    ) -> None:
        """Nobody begins another block, those begun are waited for, and the pool goes on."""
        both = threading.Barrier(2, timeout=SECONDS)
        me = threading.get_ident()
        began = []
        ended = []

        def work(_start: int, _stop: int) -> None:
            name = "caller" if threading.get_ident() == me else "helper"
            began.append(name)
            both.wait()
            if name == failing:
                raise kind
            time.sleep(0.2)  # in which the other one would begin another
            ended.append(name)

        with pytest.raises(kind) as caught:
            for_each_block(work, blocks_of(100), 2)
        assert len(ended) == 1
        assert sorted(began) == ["caller", "helper"]
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "work"
        assert len(names_at_work(2)) == 2
        assert len(pool.workers) == 1

    @pytest.mark.parametrize("first", ["helper", "caller"])
    def test_the_first_of_two_without_cycles(self, first: str) -> None:
        """They keep the arrays of their frames alive, but not each other or themselves."""
        both = threading.Barrier(2, timeout=SECONDS)
        me = threading.get_ident()
        gone = []

        def work(_start: int, _stop: int) -> None:
            name = "caller" if threading.get_ident() == me else "helper"
            both.wait()
            time.sleep(0.0 if name == first else 0.1)
            error = BlockError(name)
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
        def start(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(threading.Thread, "start", start)
        done: list[int] = []
        for_each_block(lambda start, _: done.append(start), blocks_of(3), 2)
        assert done == [0, 1, 2]
        assert pool.inbox.empty()


def run_python(code: str, *arguments: str) -> list[str]:
    """Return the lines that a program prints which ends well, in time and without complaints."""
    program = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


PRELUDE = """
    import os, signal, sys, threading, time, warnings
    from truenorm import threads
    from truenorm.threads import for_each_block

    me = threading.main_thread()
    two, three = [(0, 1), (1, 2)], [(0, 1), (1, 2), (2, 3)]
    done = []

    def note(start, stop):
        done.append(start)

    def together(count):
        everyone = threading.Barrier(count, timeout=5)
        for_each_block(lambda *_: everyone.wait(), [(0, 1)] * count, count)
"""


def test_import_loads_little_and_starts_no_thread() -> None:
    assert run_python("print('numpy' in sys.modules, threading.active_count())") == ["False 1"]


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="sends signals to a thread")
class TestInterrupts:
    """Each program interrupts its main thread, and prints what happened in which order."""

    @pytest.mark.parametrize("failing", ["with an error", ""])
    @pytest.mark.parametrize(("at_work", "waiting"), [("1", "0"), ("0", "1"), ("0", "3")])
    def test_wait_for_helpers(self, at_work: str, waiting: str, failing: str) -> None:
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
                elif role == "fails" and failing:
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
            print(len(threads._pool.workers))
        """
        printed = run_python(code, at_work, waiting, failing)
        assert printed == ["helper", "interrupt", "2"]

    def test_while_helpers_are_invited(self) -> None:
        """One has begun already."""
        code = """
            began = threading.Event()

            def work(start, stop):
                began.set()
                time.sleep(0.2)
                print("helper", flush=True)

            class Pool(threads._Pool):
                def invite(self, job, helpers):
                    super().invite(job, helpers)
                    began.wait()
                    raise KeyboardInterrupt

            threads._pool = Pool()
            try:
                for_each_block(work, three, 2)
            except KeyboardInterrupt:
                print("interrupt")
        """
        assert run_python(code) == ["helper", "interrupt"]

    def test_while_a_thread_is_started(self) -> None:
        """It is not known to the pool, and does not keep the interpreter from its end."""
        code = """
            start = threading.Thread.start

            def interrupted(self):
                start(self)
                raise KeyboardInterrupt

            threading.Thread.start = interrupted
            try:
                for_each_block(note, two, 2)
            except KeyboardInterrupt:
                print("interrupt", done)
            threading.Thread.start = start
            together(2)
        """
        assert run_python(code) == ["interrupt []"]

    def test_at_any_time(self) -> None:
        """Two within microseconds: more than a user, or a user and a launcher, can send."""
        code = """
            import random
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
        assert run_python(code) == ["True"]


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
            # Two callers and one worker; it is expected at blocks that nobody began.
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
            os._exit(len(threads._pool.workers))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        release.set()
        together(2)
    """
    assert run_python(code, parent) == ["2"]


def test_a_spawned_child(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, threading\n"
        "from truenorm.threads import for_each_block\n"
        "def together():\n"
        "    both = threading.Barrier(2, timeout=5)\n"
        "    for_each_block(lambda *_: both.wait(), [(0, 1), (1, 2)], 2)\n"
        "if __name__ == '__main__':\n"
        "    together()\n"
        "    child = multiprocessing.get_context('spawn').Process(target=together)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    print(child.exitcode)\n"
    )
    assert subprocess.check_output([sys.executable, script], text=True, timeout=SECONDS) == "0\n"


@pytest.mark.parametrize("used", ["used before", ""])
@pytest.mark.parametrize("when", ["atexit", "thread", "finalizing"])
def test_the_interpreter_exits(when: str, used: str) -> None:
    """From Python 3.12 on no thread can be started any more; 3.11 would wait for it."""
    code = """
        import atexit

        class Late:
            def __init__(self, call=for_each_block):
                self.call = call

            def __del__(self):
                done = []
                self.call(lambda start, _: done.append(start), [(0, 1), (1, 2)], 2)
                print(sorted(done))

        def late():
            time.sleep(0.2)
            for_each_block(note, two, 2)
            print(sorted(done))

        if sys.argv[2]:
            together(2)
        if sys.argv[1] == "atexit":
            atexit.register(late)
        elif sys.argv[1] == "thread":
            threading.Thread(target=late).start()
        else:
            kept = Late()
    """
    assert run_python(code, when, used) == ["[0, 1]"]
