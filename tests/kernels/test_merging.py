"""Sums over rows are values: however rows are parted, merged sums round to the same bits.

Or they say that a column is undecided. The driver would then look again; here nobody does.
"""

from typing import Any

import numpy as np
import pytest

from kernels.calls import format_for, parameter_for, rows_for
from promise.checking import BACKENDS
from promise.families import DTYPES
from truenorm.api.backends import backend_named
from truenorm.kernels import rounding
from truenorm.kernels.call import LAYER_NORM, Call, Settings
from truenorm.kernels.driver import forward, merged
from truenorm.kernels.protocol import Backward, RowSums
from truenorm.kernels.rows import stored_view

ROWS, SIZE = 60, 33


class Swept:
    """Rows with what forward kept of them, to be summed in parts."""

    def __init__(self, backend: str, dtype: np.dtype[Any], mode: Any) -> None:
        random = np.random.default_rng(0)
        self.x, self.dy = random.standard_normal((2, ROWS, SIZE)).astype(dtype)
        self.dy[::7] *= dtype.type(2**-12)
        self.target = format_for(self.x)
        ones = parameter_for(np.ones(SIZE, dtype))
        settings = Settings(LAYER_NORM, 1e-5, mode, backend, 1)
        rows, chosen = rows_for(self.x), backend_named(backend)
        call = Call.of(settings, rows, ones, ones)
        self.saved = forward(chosen, call, rows, rows_for(np.empty_like(self.x)))
        self.kernel: Backward[Any] = chosen.backward(call)

    def sums(self, start: int, stop: int) -> RowSums:
        sums: RowSums = self.kernel.sums()
        dy, x = (stored_view(array[start:stop], self.target) for array in (self.dy, self.x))
        status = np.empty(stop - start, np.uint8)
        self.kernel.compute(dy, x, self.saved[start:stop], np.empty_like(x), sums, status)
        return sums

    def parted(self, *edges: int) -> dict[str, rounding.Tested]:
        starts, stops = (0, *edges), (*edges, ROWS)
        total = merged([self.sums(*part) for part in zip(starts, stops, strict=True)])
        return {
            "dgamma": total.dgamma(self.target),
            "dbeta": total.dbeta(self.target),
        }


PARTS = [(), (8,), (16, 24, 48), tuple(range(8, ROWS, 8)), (1, 2, 3, 50)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_any_parts_give_the_same_bits(backend: str, dtype: np.dtype[Any]) -> None:
    swept = Swept(backend, dtype, "correct")
    found = [swept.parted(*edges) for edges in PARTS]
    for output in ("dgamma", "dbeta"):
        decided = ~np.logical_or.reduce([each[output].undecided for each in found])
        if output == "dgamma" or dtype != np.float64:
            assert decided.sum() >= SIZE - 2, output  # else the test says nothing
        bits = {each[output].values[decided].tobytes() for each in found}
        assert len(bits) == 1, output


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_undecided_column_says_so(backend: str) -> None:
    """Rows that cancel: no bound but zero could tell the sum from its neighbours."""
    swept = Swept(backend, np.dtype(np.float32), "correct")
    swept.dy[ROWS // 2 :] = -swept.dy[: ROWS // 2]
    swept.x[ROWS // 2 :] = swept.x[: ROWS // 2]
    swept.saved[ROWS // 2 :] = swept.saved[: ROWS // 2]
    for edges in PARTS:
        assert swept.parted(*edges)["dgamma"].undecided.all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_fast_mode_decides_everything(backend: str) -> None:
    swept = Swept(backend, np.dtype(np.float32), "fast")
    for edges in PARTS:
        for tested in swept.parted(*edges).values():
            assert not tested.undecided.any()
