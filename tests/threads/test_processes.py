"""Interrupts, forked children and the end: each in a process of its own."""

import os
import signal
import textwrap

import pytest

from programs import run_python

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
            print(len(threads._pool.workers))
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
            kept = Late()
    """
    assert run(code, when, used) == ["[0, 1]"]
