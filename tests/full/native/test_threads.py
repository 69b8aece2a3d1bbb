"""Threads of the C core: concurrent callers, the driver's threads, forks, interrupts, errors.

Programs that fork, run out of memory or change the control register have a process of their own.
"""

import platform
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import truenorm as tn
from shared.programs import run_python
from shared.promise.checking import BACKENDS, both_passes, bytes_of, without_entry
from shared.promise.families import DTYPES, Array, Case, usual_case
from truenorm import threads

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

FLOAT32 = np.dtype(np.float32)
SHAPES = ((3, 5), (40, 67), (9, 4096), (600, 129), (3, 20_000), (30_000, 2))
LARGE = (1200, 257)
"""Enough elements for several threads."""
SECONDS = 60
CHANGED = "x changed since the forward pass"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="uses functions of Linux")

PRELUDE = """
    import ctypes, os, signal, sys, threading, time, warnings
    import numpy as np
    import truenorm as tn

    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks
    random = np.random.default_rng(0)
    x, dy = (random.standard_normal((700, 300)).astype(np.float32) for _ in range(2))
    gamma, beta = (random.standard_normal(300).astype(np.float32) for _ in range(2))

    def count_threads():
        return len(os.listdir("/proc/self/task"))

    def compute(threads=4, backend="native", rounding="correct"):
        options = {"backend": backend, "threads": threads}
        y, saved = tn.layer_norm_forward(x, gamma, beta, rounding=rounding, **options)
        gradients = tn.layer_norm_backward(dy, saved, **options)
        return b"".join(each.tobytes() for each in (y, *gradients))
"""


def run(code: str, *arguments: str) -> list[str]:
    """Return the lines that a program prints."""
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(code)
    return run_python(source, *arguments, seconds=SECONDS)


@pytest.mark.parametrize(
    "seconds",
    [1.5, pytest.param(60, marks=pytest.mark.slow(reason="eight callers compute for a minute"))],
)
def test_eight_callers(seconds: float) -> None:
    """Each caller gets the right bits, with its own shapes and numbers of threads."""
    cases = [usual_case("normal", *shape, FLOAT32) for shape in SHAPES]
    expected = [bytes_of(*both_passes(case, "reference")) for case in cases]
    fast = [bytes_of(*both_passes(case, "native", "fast", threads=1)) for case in cases]
    end = time.monotonic() + seconds

    def call(number: int) -> int:
        random = np.random.default_rng(number)
        calls = 0
        while not calls or time.monotonic() < end:
            k, count = int(random.integers(len(cases))), int(random.integers(1, 6))
            assert bytes_of(*both_passes(cases[k], "native", threads=count)) == expected[k]
            assert bytes_of(*both_passes(cases[k], "native", "fast", threads=count)) == fast[k]
            calls += 1
        return calls

    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(call, range(8), timeout=60 + seconds))
    assert all(calls)


@on_linux
def test_idle_helpers_sleep() -> None:
    """They spin for 0.2 ms after a call, and then use no processor time."""
    code = """
        others = count_threads()
        compute(threads=4)
        time.sleep(0.02)
        before = time.process_time()
        time.sleep(0.1)
        print(time.process_time() - before < 0.005)
        print(count_threads() - others)
    """
    assert run(code) == ["True", "3"]


class Crew:
    """Make calls in which each requested thread computes at least one block."""

    def __init__(self) -> None:
        self.threads = 1
        self.most = 0

    def job(self, work: threads.Work, blocks: Any) -> threads._Job:
        crew = min(self.threads, len(blocks))
        self.most = max(self.most, crew)
        everyone = threading.Barrier(crew, timeout=SECONDS)
        here: set[int] = set()

        def together(start: int, stop: int) -> None:
            if threading.get_ident() not in here:
                here.add(threading.get_ident())
                everyone.wait()
            work(start, stop)

        return original_job(together, blocks)

    def check(self, case: Case, rounding: str) -> None:
        """Compare the bits of several threads with those of one."""
        expected = bytes_of(*both_passes(case, "native", rounding, threads=1))
        for count in (2, 3, 8):
            self.threads = count
            result = bytes_of(*both_passes(case, "native", rounding, threads=count))
            assert result == expected, count


original_job = threads._Job


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    from truenorm.kernels.native import blocks

    crew = Crew()
    monkeypatch.setattr(blocks, "BLOCK", 2**15)
    without_entry(monkeypatch)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(threads, "_Job", crew.job)
    return crew


def _infinite_dy(_x: Array, dy: Array) -> None:
    dy[700, 3] = np.inf


def _nan_x(x: Array, _dy: Array) -> None:
    x[700, 3] = np.nan


def _constant_rows(x: Array, _dy: Array) -> None:
    x[700:900] = 1


def _inexact_dbeta(_x: Array, dy: Array) -> None:
    dy[:, :20] *= np.float32(2.0**-60)


@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize("change", [_infinite_dy, _nan_x, _constant_rows, _inexact_dbeta])
def test_results_of_threads_are_merged(
    crew: Crew, rounding: str, change: Callable[[Array, Array], None]
) -> None:
    """Special values and inexact sums that one thread of the driver finds reach all results."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 1500, 257)).astype(np.float32)
    dy *= np.float32(10.0) ** random.uniform(-10, 10, (1500, 1)).astype(np.float32)
    gamma, beta = random.standard_normal((2, 257)).astype(ml_dtypes.bfloat16)
    change(x, dy)
    crew.check(Case("changet", x, gamma, beta, dy, 1e-5), rounding)
    assert crew.most > 1


class BlockError(Exception):
    """Raised by this test only."""


class TestErrors:
    """After an error in the middle of a call, later calls are right."""

    @pytest.fixture(autouse=True)
    def pool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_pool", threads._Pool())

    @pytest.mark.parametrize("error", [BlockError, KeyboardInterrupt, MemoryError])
    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("name", ["NativeForward", "NativeBackward"])
    def test_in_a_block(
        self, monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: type[BaseException]
    ) -> None:
        from truenorm.kernels.native import blocks

        case = usual_case("normal", *LARGE, np.float32)
        expected = bytes_of(*both_passes(case, "reference"))
        block_type = getattr(blocks, name)
        original = block_type.compute
        calls: list[int] = []

        def failing(*arguments: Any) -> Any:
            calls.append(1)
            if len(calls) == 1 + number:
                raise error
            return original(*arguments)

        with monkeypatch.context() as patched:
            without_entry(patched)  # calls of the driver's blocks
            patched.setattr(blocks, "BLOCK", 2**16)
            patched.setattr(block_type, "compute", failing)
            with pytest.raises(error):
                both_passes(case, "native", threads=3)
        assert len(calls) > number
        for count in (1, 2, 4):
            assert bytes_of(*both_passes(case, "native", threads=count)) == expected

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_x_changed_in_any_row(self, dtype: np.dtype[Any], rounding: str) -> None:
        """The caller gets an error whichever thread detects it, and later calls are right."""
        case = usual_case("normal", *LARGE, dtype)
        x, dy = case.x.copy(), case.dy
        _, saved = tn.layer_norm_forward(
            x, *case.parameters, backend="native", rounding=rounding, threads=3
        )
        expected = tn.layer_norm_backward(dy, saved, backend="native", threads=3)
        for row in (0, 400, 500, 799, 801, len(x) - 1):
            before = x[row, 7]
            x[row, 7] += dtype.type(3)
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(dy, saved, backend="native", threads=3)
            x[row, 7] = before
        gradients = tn.layer_norm_backward(dy, saved, backend="native", threads=3)
        assert bytes_of(*gradients) == bytes_of(*expected)


@on_linux
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
    """An interrupt during a call is raised after it, and later calls are right."""
    code = """
        right = compute(threads=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        large = random.standard_normal((4000, 1000)).astype(np.float32)
        y = np.empty_like(large)
        raised = 0
        for threads in (1, 2, 4):
            began = time.perf_counter()
            tn.layer_norm(large, out=y, threads=threads, backend="native")
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
                        tn.layer_norm(large, out=y, threads=threads, backend="native")
                except KeyboardInterrupt:
                    raised += 1
                    assert np.array_equal(y, whole)
                assert compute(threads) == right
        print(raised)
    """
    assert run(code) == ["6"]


@on_linux
def test_lack_of_memory() -> None:
    """Raise MemoryError, also if no helper can be started; later calls are right."""
    code = """
        import resource

        right = compute(threads=1)
        rows, size = 70, 100_000  # not so few that threads share a row, which needs less
        x_, dy_, dx = (np.zeros((rows, size), np.float32) for _ in range(3))
        x_[:, ::2] = 1
        gamma_ = np.ones(size, np.float32)
        saved = [
            tn.layer_norm_forward(
                x_, gamma_, gamma_, rounding=rounding, out=dx, threads=1, backend="native"
            )[1]
            for rounding in ("correct", "fast")
        ]
        with open("/proc/self/statm") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        before = resource.getrlimit(resource.RLIMIT_AS)
        ends = []
        for more in (0, 1 << 22):
            for each in saved:
                resource.setrlimit(resource.RLIMIT_AS, (now + more, before[1]))
                try:
                    tn.layer_norm_backward(dy_, each, out=dx, threads=8, backend="native")
                    ends.append("done")
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
        before = resource.getrlimit(resource.RLIMIT_AS)
        y = np.empty_like(x)
        resource.setrlimit(resource.RLIMIT_AS, (now, before[1]))
        tn.layer_norm(x, gamma, beta, out=y, threads=60, backend="native")
        tasks = count_threads()
        resource.setrlimit(resource.RLIMIT_AS, before)
        print(y.tobytes() == right[: y.nbytes], tasks < 10)
        assert compute(threads=4) == right
    """
    assert run(code) == ["True True"]


CONTROL = """
#include <xmmintrin.h>
void set_control(unsigned bits) { _mm_setcsr(0x1F80u | bits); }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets the register of x86-64")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
@on_linux
def test_flushed_subnormals(tmp_path: Path) -> None:
    """Raise in a thread that flushes subnormals; later calls of other threads are right."""
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
