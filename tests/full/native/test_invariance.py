"""Bits of the C core depend neither on threads, batch and layout nor on the path of the call.

Paths are whole calls in C, and the driver for arrays that are not contiguous.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from shared.promise.checking import BACKENDS, SETS, both_passes, bytes_of, forward_pass
from shared.promise.families import Case

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.api import fast_path
from truenorm.kernels.call import LAYER_NORM, RMS_NORM
from truenorm.kernels.native import _core

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
of_each_norm = pytest.mark.parametrize("centred", [True, False], ids=["layer_norm", "rms_norm"])
of_each_mode = pytest.mark.parametrize("rounding", ["correct", "fast"])


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select an instruction set for a test."""
    if _core.select(request.param) != request.param:
        pytest.skip("not an instruction set of this processor")
    yield request.param
    _core.select(None)


def case_of(
    rows: int, size: int, dtype: np.dtype[Any] = FLOAT64, *, centred: bool, far: bool = True
) -> Case:
    """Return a case; with `far`, some rows leave the range of fast arithmetic."""
    random = np.random.default_rng(7)
    x, dy = random.standard_normal((2, rows, size))
    gamma, beta = random.standard_normal((2, size))
    if dtype == FLOAT64:
        x[1] += 1e15
    if far:
        x[2] *= 1e200 if dtype == FLOAT64 else 1e25
        dy[5] *= 1e-305 if dtype == FLOAT64 else 1e-30
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    case = Case("usual and far rows", x, gamma, beta, dy, 1e-5)
    return case if centred else case.as_rms_norm()


def backward(case: Case, saved: tn.Saved, backend: str | None = None) -> list[bytes]:
    """Return the bytes of dx, dgamma and dbeta."""
    run = tn.layer_norm_backward if case.centred else tn.rms_norm_backward
    return bytes_of(*run(case.dy, saved, backend=backend))


class SameBits:
    """Threads, batch and layout."""

    dtype: np.dtype[Any]

    @pytest.fixture
    def case(self, shape: tuple[int, int], *, centred: bool) -> Case:
        return case_of(*shape, self.dtype, centred=centred)

    def test_threads(self, case: Case, rounding: str) -> None:
        one = bytes_of(*both_passes(case, "native", rounding, threads=1))
        for threads in (2, 3, 8):
            assert bytes_of(*both_passes(case, "native", rounding, threads=threads)) == one

    def test_batch(self, case: Case, rounding: str) -> None:
        count = len(case.x) if self.dtype == FLOAT32 else 9
        y, dx, _, _ = both_passes(case, "native", rounding)
        for i in range(count):
            row = slice(i, i + 1)
            alone = both_passes(case.rows(row), "native", rounding)
            assert bytes_of(*alone[:2]) == bytes_of(y[row], dx[row])

    def test_layout(self, case: Case, rounding: str) -> None:
        expected = bytes_of(*both_passes(case, "native", rounding))
        other = replace(case, dy=np.asfortranarray(case.dy))
        for each in (replace(other, x=np.asfortranarray(case.x)), other):
            assert bytes_of(*both_passes(each, "native", rounding)) == expected


@of_each_norm
@pytest.mark.parametrize("rounding", ["fast"])
@pytest.mark.parametrize(
    "shape", [(300, 64), (64, 1000), (1030, 129), (9, 5000), (700, 3)], ids=str
)
class TestFloat32(SameBits):
    dtype = FLOAT32


@pytest.mark.usefixtures("instructions")
@of_each_norm
@of_each_mode
@pytest.mark.parametrize("shape", [(300, 64), (64, 1000), (9, 5000), (700, 3)], ids=str)
class TestFloat64(SameBits):
    dtype = FLOAT64


@pytest.mark.usefixtures("instructions")
@of_each_norm
@of_each_mode
@pytest.mark.parametrize("size", [2, 7, 64, 513, 2050])
def test_whole_calls_on_float64(size: int, rounding: str, *, centred: bool) -> None:
    """The core computes usual numbers without the driver, and with the same bits."""
    case = case_of(9, size, centred=centred, far=False)
    norm = LAYER_NORM if centred else RMS_NORM
    arrays = (case.x, case.gamma, case.beta)
    results = fast_path.forward(
        norm, *arrays, -1, case.eps, rounding, None, "native", 1, None, True
    )
    assert results is not NotImplemented
    y, saved = results
    gradients = fast_path.backward(norm, case.dy, saved, None, "native", 1, None)
    assert gradients is not NotImplemented
    strided = replace(case, x=np.asfortranarray(case.x), dy=np.asfortranarray(case.dy))
    by_driver = bytes_of(*both_passes(strided, "native", rounding))
    assert by_driver == bytes_of(y, *gradients)


@of_each_norm
@of_each_mode
@pytest.mark.parametrize("backends", [("reference", "native"), ("native", "reference")], ids=str)
def test_saved_statistics_of_another_backend(
    backends: tuple[str, str], rounding: str, *, centred: bool
) -> None:
    case = case_of(9, 64, centred=centred)
    gradients = []
    for backend in backends:
        _, saved = forward_pass(case, backend, rounding=rounding)
        gradients.append(backward(case, saved, backends[1]))
    assert gradients[0] == gradients[1]


def test_a_better_instruction_set_cannot_be_selected() -> None:
    best = _core.select(None)
    try:
        for name in SETS:
            assert SETS.index(_core.select(name)) <= SETS.index(best)
    finally:
        _core.select(None)
    with pytest.raises(ValueError, match="instruction set must be 'baseline'"):
        _core.select("sse9")
