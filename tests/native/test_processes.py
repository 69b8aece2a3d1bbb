"""Forks, interrupts, lack of memory and flushed subnormals: each in a process of its own."""

import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from native.programs import run
from promise.checking import BACKENDS

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="uses functions of Linux")


@on_linux  # where threads can be counted
@pytest.mark.parametrize("parent", ["without helpers", "idle", "busy"])
def test_forked_children(parent: str) -> None:
    """A child starts helpers of its own; parent and child compute the right bits."""
    code = """
        right = compute(threads=1, backend="reference")
        ended = threading.Event()

        def compute_until_the_end():
            while not ended.is_set():
                assert compute(threads=3) == right

        if sys.argv[1] != "without helpers":
            assert compute(threads=4) == right
        callers = [threading.Thread(target=compute_until_the_end) for _ in range(2)]
        if sys.argv[1] == "busy":
            for each in callers:
                each.start()
        for _ in range(10):
            child = os.fork()
            if not child:
                signal.alarm(20)
                before = count_threads()
                same = compute(threads=4) == right and compute(threads=2) == right
                os._exit(0 if same and count_threads() == before + 3 else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert compute(threads=4) == right
        ended.set()
        if sys.argv[1] == "busy":
            for each in callers:
                each.join()
        print("right")
    """
    assert run(code, parent) == ["right"]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="sends a signal")
def test_interrupts() -> None:
    """One that arrives during a call is raised after it, and later calls are right."""
    code = """
        from truenorm.kernels.native import _core

        right = compute(threads=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        large = random.standard_normal((4000, 1000)).astype(np.float32)
        y, saved = np.empty_like(large), np.empty((4000, 3))
        raised = 0
        for threads in (1, 2, 4):
            began = time.perf_counter()
            assert _core.forward(large, None, None, y, saved, 1e-5, _core.CENTRED, threads)
            lasts = time.perf_counter() - began
            whole = y.copy()
            y[:] = 0
            for interrupt in (signal.SIGALRM, signal.SIGINT):
                try:
                    if interrupt == signal.SIGALRM:
                        signal.setitimer(signal.ITIMER_REAL, lasts / 4)
                    else:
                        main = threading.main_thread().ident
                        timer = threading.Timer(lasts / 4, signal.pthread_kill, (main, interrupt))
                        timer.start()
                    for _ in range(1000):
                        _core.forward(large, None, None, y, saved, 1e-5, _core.CENTRED, threads)
                except KeyboardInterrupt:
                    raised += 1
                    assert np.array_equal(y, whole)
                assert compute(threads) == right
        print(raised)
    """
    assert run(code) == ["6"]


@on_linux
def test_lack_of_memory() -> None:
    """MemoryError, not a crash; also if no helper can be started. Later calls are right."""
    code = """
        import resource
        from truenorm.kernels.native import _core

        right = compute(threads=1)
        rows, size = 70, 100_000  # not so few that threads share a row, which needs less
        x_, dy_, dx = (np.zeros((rows, size), np.float32) for _ in range(3))
        x_[:, ::2] = 1
        dgamma, dbeta = np.empty(size, np.float32), np.empty(size, np.float32)
        gamma_, saved = np.ones(size, np.float32), np.empty((rows, 3))
        assert _core.forward(x_, gamma_, None, dx, saved, 1e-5, _core.CENTRED, 1)
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        ends = []
        for more in (0, 1 << 22):
            for mode in (_core.CENTRED, _core.CENTRED | _core.FAST):
                resource.setrlimit(resource.RLIMIT_AS, (now + more, before[1]))
                try:
                    arrays = (dy_, x_, gamma_, saved, dx, dgamma, dbeta)
                    ends.append(_core.backward(*arrays, 1e-5, mode, 8))
                except MemoryError:
                    ends.append("MemoryError")
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, before)
                assert compute(threads=1) == right
        print(set(ends))
        assert compute(threads=4) == right
    """
    assert run(code) == ["{'MemoryError'}"]


@on_linux
def test_without_helpers() -> None:
    """A call computes alone if no thread can be started."""
    code = """
        import resource

        right = compute(threads=1)
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        from truenorm.kernels.native import _core
        before = resource.getrlimit(resource.RLIMIT_AS)
        y, saved = np.empty_like(x), np.empty((len(x), 3))
        resource.setrlimit(resource.RLIMIT_AS, (now, before[1]))
        done = _core.forward(x, gamma, beta, y, saved, 1e-5, _core.CENTRED, 60)
        tasks = count_threads()
        resource.setrlimit(resource.RLIMIT_AS, before)
        print(done, y.tobytes() == right[: y.nbytes], tasks < 10)
        assert compute(threads=4) == right
    """
    assert run(code) == ["True True True"]


CONTROL = """
#include <xmmintrin.h>
void set_control(unsigned bits) { _mm_setcsr(0x1F80u | bits); }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the register of x86-64")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@on_linux
def test_flushed_subnormals(tmp_path: Path) -> None:
    """A thread that flushes is refused; later calls of other threads are right."""
    source, library = tmp_path / "control.c", tmp_path / "control.so"
    source.write_text(CONTROL, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    code = """
        set_control = ctypes.PyDLL(sys.argv[1]).set_control
        gamma, beta = gamma * np.float32(1e-39), beta * np.float32(1e-40)  # y, dx are subnormal
        rights = {mode: compute(1, rounding=mode) for mode in ("correct", "fast")}
        assert rights["correct"] == compute(1, "reference")

        def flush():
            set_control(0x8040)
            for rounding in ("correct", "fast"):
                try:
                    compute(4, rounding=rounding)
                except RuntimeError as error:
                    print("flushes subnormal numbers to zero" in str(error))
            set_control(0)

        thread = threading.Thread(target=flush)
        thread.start()
        thread.join()
        for mode, right in rights.items():
            for threads in (2, 4):
                print(compute(threads, rounding=mode) == right)
    """
    assert run(code, str(library)) == ["True"] * 6
