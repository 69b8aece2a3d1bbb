"""The driver's threads: what they find out about rows and columns is put together."""

import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from promise.checking import BACKENDS, both_passes, bytes_of
from promise.families import Array, Case
from truenorm import threads
from truenorm.api.backends import backend_named

pytestmark = pytest.mark.skipif("native" not in BACKENDS, reason="needs the C core")

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
        expected = bytes_of(*both_passes(case, "native", rounding, threads=1))
        for count in (2, 3, 8):
            self.threads = count
            found = bytes_of(*both_passes(case, "native", rounding, threads=count))
            assert found == expected, count


original_job = threads._Job


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Crew:
    from truenorm.kernels.native import blocks

    made = Crew()
    monkeypatch.setattr(blocks, "BLOCK", 2**15)
    monkeypatch.setattr(type(backend_named("native")), "core", None)
    monkeypatch.setattr(threads, "_pool", threads._Pool())
    monkeypatch.setattr(threads, "_Job", made.job)
    return made


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
