"""Helper threads of the C core: bits, callers at the same time, idle helpers."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from native.programs import run
from promise.checking import BACKENDS, both_passes, bytes_of
from promise.families import usual_case

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

import truenorm as tn

SHAPES = ((3, 5), (40, 67), (9, 4096), (600, 129), (3, 20_000), (30_000, 2))
FLOAT32 = np.dtype(np.float32)


@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize("norm", ["layer norm", "RMSNorm"])
def test_bits_do_not_depend_on_threads(norm: str, rounding: str) -> None:
    for shape in SHAPES:
        case = usual_case("normal", *shape, FLOAT32)
        results = {_bits(case, norm, rounding, threads) for threads in (1, 2, 3, 7, 64)}
        assert len(results) == 1, shape


def _bits(case: Any, norm: str, rounding: str, threads: int) -> bytes:
    options: dict[str, Any] = {"backend": "native", "threads": threads}
    gamma, beta = case.parameters
    if norm == "RMSNorm":
        y, saved = tn.rms_norm_forward(case.x, gamma, rounding=rounding, **options)
        found = tn.rms_norm_backward(case.dy, saved, **options)
    else:
        y, saved = tn.layer_norm_forward(case.x, gamma, beta, rounding=rounding, **options)
        found = tn.layer_norm_backward(case.dy, saved, **options)
    return b"".join(bytes(each.tobytes()) for each in (y, *found) if each is not None)


@pytest.mark.parametrize("seconds", [1.5, pytest.param(60, marks=pytest.mark.slow)])
def test_eight_callers(seconds: float) -> None:
    """Each gets the right bits, with shapes and numbers of threads of its own."""
    cases = [usual_case("normal", *shape, FLOAT32) for shape in SHAPES]
    expected = [bytes_of(*both_passes(case, "reference")) for case in cases]
    fast = [_bits(case, "layer norm", "fast", 1) for case in cases]
    end = time.monotonic() + seconds

    def call(number: int) -> int:
        random = np.random.default_rng(number)
        calls = 0
        while not calls or time.monotonic() < end:
            k, threads = int(random.integers(len(cases))), int(random.integers(1, 6))
            assert bytes_of(*both_passes(cases[k], "native", threads=threads)) == expected[k]
            assert _bits(cases[k], "layer norm", "fast", threads) == fast[k]
            calls += 1
        return calls

    with ThreadPoolExecutor(8) as pool:
        calls = list(pool.map(call, range(8), timeout=60 + seconds))
    assert all(calls)


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
def test_idle_helpers_sleep() -> None:
    """They spin for 0.2 ms after a call, and then take no time of the processor."""
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
