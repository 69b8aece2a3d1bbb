"""Many callers, children, errors, interrupts and folders that cannot be written to."""

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

import truenorm as tn
from programs import run_python
from promise.families import DTYPES, Array
from truenorm import threads
from truenorm.kernels.fused import correct, correct_backward

CHANGED = "x changed since the forward pass"
LARGE = (1200, 257)  # elements enough for several threads


def bits(backend: str, x: Array, dy: Array, gamma: Array, **options: Any) -> bytes:
    y, saved = tn.layer_norm_forward(x, gamma, gamma, backend=backend, **options)
    gradients = tn.layer_norm_backward(dy, saved, backend=backend)
    return b"".join(np.asarray(part).tobytes() for part in (y, *gradients))


def normal(shape: tuple[int, int], dtype: Any = np.float32, seed: int = 0) -> tuple[Array, ...]:
    random = np.random.default_rng(seed)
    x, dy = random.standard_normal((2, *shape)).astype(dtype)
    return x, dy, random.standard_normal(shape[1]).astype(dtype)


class TestManyCallers:
    """Of sixteen threads, with shapes and types of their own, each gets the right bits."""

    SHAPES = ((1, 1), (3, 5), (40, 67), (9, 4096), (600, 129), (70_000, 1))

    def check(self, seconds: float) -> None:
        choices = [(shape, dtype) for shape in self.SHAPES for dtype in DTYPES]
        inputs = [normal(shape, dtype, k) for k, (shape, dtype) in enumerate(choices)]
        expected = [bits("reference", *arrays) for arrays in inputs]
        assert [bits("fused", *arrays) for arrays in inputs] == expected  # all is compiled now
        wrong: list[tuple[Any, ...]] = []
        calls = []
        end = time.monotonic() + seconds

        def call(number: int) -> None:
            random = np.random.default_rng(number)
            while time.monotonic() < end:
                k = int(random.integers(len(inputs)))
                count = int(random.integers(1, 5))
                try:
                    found = bits("fused", *inputs[k], threads=count)
                except BaseException as error:
                    wrong.append((*choices[k], error))
                    raise
                if found != expected[k]:
                    wrong.append((*choices[k], count))
                calls.append(number)

        callers = [threading.Thread(target=call, args=(number,)) for number in range(16)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60 + seconds)
        assert not any(caller.is_alive() for caller in callers)
        assert not wrong, wrong[:5]
        assert set(calls) == set(range(16))

    def test_for_a_while(self) -> None:
        self.check(2)

    @pytest.mark.slow
    def test_for_longer(self) -> None:
        self.check(10)


CALL = """
    import hashlib, multiprocessing, os, signal, sys, threading, warnings
    import numpy as np
    import truenorm as tn
    from truenorm import threads

    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 1200, 257)).astype(np.float32)
    gamma = random.standard_normal(257).astype(np.float32)

    def call(backend="fused"):
        y, saved = tn.layer_norm_forward(x, gamma, gamma, backend=backend, threads=3)
        gradients = tn.layer_norm_backward(dy, saved, backend=backend, threads=3)
        return hashlib.sha256(b"".join(part.tobytes() for part in (y, *gradients))).hexdigest()
"""


class TestChildren:
    @pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
    @pytest.mark.parametrize("parent", ["idle", "busy"])
    def test_forked(self, parent: str) -> None:
        """It has none of its parent's threads, and the locks as they were."""
        code = (
            CALL
            + """
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of what we try
    right = call("reference")
    print(call() == right, len(threads._pool.workers))
    ended = threading.Event()

    def busy():
        while not ended.is_set():
            call()

    if sys.argv[1] == "busy":
        threading.Thread(target=busy).start()
    for _ in range(5):
        child = os.fork()
        if not child:
            signal.alarm(30)
            same = call() == right
            os._exit(len(threads._pool.workers) if same else 100)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    ended.set()
    print(call() == right)
"""
        )
        assert run_python(code, parent) == ["True 2", *["2"] * 5, "True"]

    def test_spawned(self, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(
            CALL.replace("\n    ", "\n")
            + "if __name__ == '__main__':\n"
            + "    found = call()\n"
            + "    with multiprocessing.get_context('spawn').Pool(2) as children:\n"
            + "        ran = [children.apply_async(call) for _ in range(4)]\n"
            + "        others = {child.get(100) for child in ran}\n"
            + "        print(others == {found} == {call('reference')})\n",
            encoding="utf-8",
        )
        code = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
        assert run_python(code, str(script)) == ["True"]


class BlockError(Exception):
    """Of nobody else."""


class TestErrors:
    """Whatever goes wrong in one call, the next one is as if nothing had been."""

    @pytest.fixture(autouse=True)
    def pool(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(threads, "_pool", threads._Pool())

    @pytest.mark.parametrize("error", [BlockError, KeyboardInterrupt, MemoryError])
    @pytest.mark.parametrize("number", [0, 1])
    @pytest.mark.parametrize("module", [correct, correct_backward], ids=["forward", "backward"])
    def test_in_a_block(
        self,
        monkeypatch: pytest.MonkeyPatch,
        module: Any,
        number: int,
        error: type[BaseException],
    ) -> None:
        arrays = normal(LARGE)
        expected = bits("reference", *arrays)
        name = "_narrow_block" if module is correct else "_sweep_block"
        original = getattr(module, name)
        begun: list[int] = []

        def failing(*arguments: Any) -> Any:
            begun.append(1)
            if len(begun) == 1 + number:
                raise error
            return original(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(module, name, failing)
            with pytest.raises(error):
                bits("fused", *arrays, threads=3)
        assert len(begun) > number
        for count in (1, 2, 4):
            assert bits("fused", *arrays, threads=count) == expected

    @pytest.mark.parametrize("rounding", ["correct", "fast"])
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_x_changed_in_any_row(self, dtype: np.dtype[Any], rounding: str) -> None:
        """Whoever sees it, the caller is told; and once it is mended, all is well."""
        x, dy, gamma = normal(LARGE, dtype)
        _, saved = tn.layer_norm_forward(
            x, gamma, gamma, backend="fused", rounding=rounding, threads=3
        )
        expected = tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
        for row in (0, 400, 500, 799, 801, len(x) - 1):
            kept = x[row, 7]
            x[row, 7] += dtype.type(3)
            with pytest.raises(RuntimeError, match=CHANGED):
                tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
            x[row, 7] = kept
        found = tn.layer_norm_backward(dy, saved, backend="fused", threads=3)
        for one, other in zip(found, expected, strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


INTERRUPTED = (
    CALL
    + """
    import time
    x = random.standard_normal((20_000, 257)).astype(np.float32)
    dy = x[::-1].copy()
    right = call()
    begin = time.monotonic()
    call()
    usual = time.monotonic() - begin
    interrupts = 0
    for k in range(10):
        timer = threading.Timer(usual * (k + 0.5) / 11, sys.argv[1] == "signal" and (
            lambda: signal.raise_signal(signal.SIGINT)) or __import__("_thread").interrupt_main)
        try:
            timer.start()
            call()
            timer.join()
        except KeyboardInterrupt:
            interrupts += 1
    print(interrupts)
    print(call() == right)
"""
)


@pytest.mark.parametrize("how", ["signal", "interrupt_main"])
def test_an_interrupt_during_a_long_call(how: str) -> None:
    """It ends the call, and the next one is right."""
    interrupts, right = run_python(INTERRUPTED, how)
    assert int(interrupts) >= 5
    assert right == "True"


def test_import_loads_no_numba_and_a_small_call_starts_no_thread() -> None:
    code = """
        import sys, threading
        import numpy as np
        import truenorm as tn
        print("numba" in sys.modules, threading.active_count())
        x = np.arange(12.0, dtype=np.float32).reshape(3, 4)
        _, saved = tn.layer_norm_forward(x, x[0], x[1], backend="fused", threads=8)
        tn.layer_norm_backward(x, saved, backend="fused", threads=8)
        print("numba" in sys.modules, threading.active_count())
    """
    assert run_python(code) == ["False 1", "True 1"]


def test_a_large_call_starts_no_more_threads_than_asked_for() -> None:
    code = CALL + "    call()\n    print(threading.active_count())\n"
    assert run_python(code) == ["3"]
    assert run_python(code.replace("threads=3", "threads=1")) == ["1"]
    assert run_python(code.replace("threads=3", "threads=None"), OMP_NUM_THREADS="2") == ["2"]


class TestNothingCanBeKept:
    """Then everybody compiles, here eight threads at once that need the same kernels."""

    CODE = """
        import threading
        import numpy as np
        import truenorm as tn
        x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
        found = []

        def call():
            together.wait()
            found.append(tn.layer_norm(x, backend="fused").tobytes())

        together = threading.Barrier(8)
        callers = [threading.Thread(target=call) for _ in range(8)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        print(found == [tn.layer_norm(x, backend="reference").tobytes()] * 8)
    """

    def test_below_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("nothing")
        assert run_python(self.CODE, TRUENORM_CACHE_DIR=str(file / "kept")) == ["True"]
        assert file.read_text() == "nothing"

    @pytest.mark.slow
    @pytest.mark.skipif(sys.platform == "win32", reason="there, the mode says nothing")
    def test_a_folder_that_is_not_for_writing(self, tmp_path: Path) -> None:
        folder = tmp_path / "kept"
        folder.mkdir(mode=0o500)
        if os.access(folder, os.W_OK):  # as root
            folder = Path("/proc")
        before = len(list(tmp_path.rglob("*")))
        assert run_python(self.CODE, TRUENORM_CACHE_DIR=str(folder)) == ["True"]
        assert len(list(tmp_path.rglob("*"))) == before
