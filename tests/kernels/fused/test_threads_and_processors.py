"""The same bits on any number of threads, and in correct mode on any processor."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("numba")

from llvmlite import binding  # type: ignore[import-untyped]

from gated import GATED_TYPES
from programs import run_python
from promise.families import DTYPES, Array, Case, usual_case
from promise.hard_cases import hard_cases
from promise.judging import both_passes, bytes_of
from promise.suites import cases
from truenorm import threads

SECONDS = 60


class Crew:
    """Makes calls in which every thread that was asked for does at least one block."""

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
        """Hold the bits of several threads against those of one."""
        expected = bytes_of(*both_passes(case, "fused", rounding, threads=1))
        for count in (2, 3, 8):
            self.threads = count
            found = bytes_of(*both_passes(case, "fused", rounding, threads=count))
            assert found == expected, count


original_job = threads._Job


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    made = Crew()
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(threads, "_Job", made.job)
    return made


@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize(
    ("rows", "size"), [(2000, 513), (9, 130_000), (130_001, 8)], ids=["usual", "long", "short"]
)
@pytest.mark.parametrize("dtype", GATED_TYPES, ids=str)
def test_the_number_of_threads_does_not_matter(
    crew: Crew, dtype: np.dtype[Any], rows: int, size: int, rounding: str
) -> None:
    """Where magnitudes differ from row to row, so that the order of a sum would be seen."""
    case = usual_case("normal", rows, size, dtype)
    factors = 10.0 ** np.random.default_rng(0).uniform(-3, 3, (rows, 1))
    crew.check(replace(case, dy=(case.dy * factors).astype(dtype)), rounding)
    assert crew.most >= (5 if rows == 9 else 8)  # nine such rows are five blocks


def _dy_is_infinite(_x: Array, dy: Array) -> None:
    dy[700, 3] = np.inf


def _x_is_nan(x: Array, _dy: Array) -> None:
    x[700, 3] = np.nan


def _rows_are_constant(x: Array, _dy: Array) -> None:
    x[700:900] = 1


def _dbeta_needs_integers(_x: Array, dy: Array) -> None:
    dy[:, :20] *= np.float32(2.0**-60)


@pytest.mark.parametrize("rounding", ["correct", "fast"])
@pytest.mark.parametrize(
    "spoil", [_dy_is_infinite, _x_is_nan, _rows_are_constant, _dbeta_needs_integers]
)
def test_what_threads_find_out_is_put_together(
    crew: Crew, rounding: str, spoil: Callable[[Array, Array], None]
) -> None:
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, 1500, 257)).astype(np.float32)
    dy *= np.float32(10.0) ** random.uniform(-10, 10, (1500, 1)).astype(np.float32)
    gamma, beta = random.standard_normal((2, 257)).astype(ml_dtypes.bfloat16)
    spoil(x, dy)
    crew.check(Case("spoilt", x, gamma, beta, dy, 1e-5), rounding)
    assert crew.most > 1


def test_threads_and_numba_are_started_when_needed() -> None:
    """By no import, by no small call, and never more threads than asked for."""
    code = """
        import sys, threading
        import numpy as np
        import truenorm as tn
        print("numba" in sys.modules, threading.active_count())
        for rows, asked in (3, 8), (1200, 1), (1200, None), (1200, 3):
            x = np.arange(257.0 * rows, dtype=np.float32).reshape(rows, 257)
            _, saved = tn.layer_norm_forward(x, x[0], x[1], backend="fused", threads=asked)
            tn.layer_norm_backward(x, saved, backend="fused", threads=asked)
            print("numba" in sys.modules, threading.active_count())
    """
    printed = run_python(code, OMP_NUM_THREADS="2")
    assert printed == ["False 1", "True 1", "True 1", "True 2", "True 3"]


def digest(dtype: Any, backend: str) -> str:
    """Return the bits of families and hard cases in a few letters."""
    kind = np.dtype(dtype)
    hard = (hard_cases(output, kind, 200) for output in ("y", "dx", "dgamma"))
    seen = hashlib.sha256()
    for case in chain(cases(kind, 14_000), *hard):
        # For parameters of other types there are other kernels.
        if all(array is None or array.dtype == kind for array in (case.gamma, case.beta)):
            for part in bytes_of(*both_passes(case, backend)):
                seen.update(part)
    return seen.hexdigest()[:16]


DIGEST = """
    import sys
    from kernels.fused.test_threads_and_processors import digest
    for dtype in sys.argv[1:]:
        print(digest(dtype, "fused"))
"""


def without_avx512() -> dict[str, str]:
    features = binding.get_host_cpu_features()
    some = {name: on and not name.startswith("avx512") for name, on in features.items()}
    return {"NUMBA_CPU_FEATURES": ",".join(f"{'-+'[on]}{name}" for name, on in some.items())}


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [lambda: {"NUMBA_CPU_NAME": "generic"}, without_avx512],  # the first has no multiply-add
    ids=["generic", "without AVX-512"],
)
def test_every_processor_and_type(variables: Callable[[], dict[str, str]]) -> None:
    names = [dtype.name for dtype in DTYPES]
    found = run_python(DIGEST, *names, seconds=600, **variables())
    assert found == [digest(name, "reference") for name in names]
