"""Many callers, children, errors, interrupts and a folder that cannot be written to."""

import os
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

    @pytest.mark.parametrize("seconds", [2, pytest.param(10, marks=pytest.mark.slow)])
    def test_for_a_while(self, seconds: float) -> None:
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


CALL = """
    import hashlib, multiprocessing, os, signal, threading, time, warnings
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
    def test_forked(self) -> None:
        """It has none of its busy parent's threads, and the locks as they were."""
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
        assert run_python(code) == ["True 2", *["2"] * 5, "True"]

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
    x = random.standard_normal((20_000, 257)).astype(np.float32)
    dy = x[::-1].copy()
    right = call()
    begin = time.monotonic()
    call()
    usual = time.monotonic() - begin
    interrupts = 0
    for k in range(10):
        timer = threading.Timer(usual * (k + 0.5) / 11, signal.raise_signal, [signal.SIGINT])
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


def test_an_interrupt_during_a_long_call() -> None:
    """It ends the call, and the next one is right."""
    interrupts, right = run_python(INTERRUPTED)
    assert int(interrupts) >= 5
    assert right == "True"


def test_nothing_can_be_kept(tmp_path: Path) -> None:
    """Then everybody compiles, here eight threads at once that need the same kernels."""
    code = """
        from concurrent.futures import ThreadPoolExecutor
        import threading
        import numpy as np
        import truenorm as tn
        x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
        together = threading.Barrier(8)

        def call(_):
            together.wait()
            return tn.layer_norm(x, backend="fused").tobytes()

        with ThreadPoolExecutor(8) as callers:
            found = {*callers.map(call, range(8))}
        print(found == {tn.layer_norm(x, backend="reference").tobytes()})
    """
    (tmp_path / "file").touch()
    assert run_python(code, TRUENORM_CACHE_DIR=str(tmp_path / "file" / "kept")) == ["True"]
