"""Bits of the C core depend neither on threads, batch and layout nor on the path of the call.

Paths are whole calls in C, and the driver for arrays that are not contiguous.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import truenorm as tn
from promise.checking import BACKENDS, SETS

if "native" not in BACKENDS:
    pytest.skip("needs the C core", allow_module_level=True)

from truenorm.kernels.native import _core

Array = np.ndarray[Any, Any]
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


def inputs(
    rows: int, size: int, dtype: np.dtype[Any] = FLOAT64, *, far: bool = True
) -> tuple[Array, Array, Array, Array]:
    """Return x, gamma, beta and dy; with `far`, some rows leave the range of fast arithmetic."""
    random = np.random.default_rng(7)
    x, dy = random.standard_normal((2, rows, size))
    gamma, beta = random.standard_normal((2, size))
    if dtype == FLOAT64:
        x[1] += 1e15
    if far:
        x[2] *= 1e200 if dtype == FLOAT64 else 1e25
        dy[5] *= 1e-305 if dtype == FLOAT64 else 1e-30
    x, gamma, beta, dy = (each.astype(dtype) for each in (x, gamma, beta, dy))
    return x, gamma, beta, dy


def forward(x: Array, gamma: Array, beta: Array, *, centred: bool, **options: Any) -> Any:
    """Return y and the saved arguments of backward."""
    if centred:
        return tn.layer_norm_forward(x, gamma, beta, **options)
    return tn.rms_norm_forward(x, gamma, **options)


def backward(dy: Array, saved: Any, *, centred: bool, backend: str | None = None) -> list[bytes]:
    """Return the bytes of dx, dgamma and dbeta."""
    run = tn.layer_norm_backward if centred else tn.rms_norm_backward
    return [each.tobytes() for each in run(dy, saved, backend=backend) if each is not None]


def both_passes(
    x: Array, gamma: Array, beta: Array, dy: Array, *, centred: bool, **options: Any
) -> list[bytes]:
    """Return the bytes of y, dx, dgamma and dbeta."""
    y, saved = forward(x, gamma, beta, centred=centred, backend="native", **options)
    return [y.tobytes(), *backward(dy, saved, centred=centred, backend="native")]


class SameBits:
    """Threads, batch and layout."""

    dtype: np.dtype[Any]

    def test_threads(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        arrays = inputs(*shape, self.dtype)
        one = both_passes(*arrays, centred=centred, rounding=rounding, threads=1)
        for threads in (2, 3, 8):
            several = both_passes(*arrays, centred=centred, rounding=rounding, threads=threads)
            assert several == one

    def test_batch(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        x, gamma, beta, dy = inputs(*shape, self.dtype)

        def run(rows: slice) -> list[bytes]:
            return both_passes(x[rows], gamma, beta, dy[rows], centred=centred, rounding=rounding)

        y, dx = run(slice(None))[:2]
        count = len(x) if self.dtype == FLOAT32 else 9
        single = [run(slice(i, i + 1))[:2] for i in range(count)]
        assert y.startswith(b"".join(row[0] for row in single))
        assert dx.startswith(b"".join(row[1] for row in single))

    def test_layout(self, shape: tuple[int, int], rounding: str, *, centred: bool) -> None:
        x, gamma, beta, dy = inputs(*shape, self.dtype)
        expected = both_passes(x, gamma, beta, dy, centred=centred, rounding=rounding)
        for each in (np.asfortranarray(x), x):
            result = both_passes(
                each, gamma, beta, np.asfortranarray(dy), centred=centred, rounding=rounding
            )
            assert result == expected


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
    x, gamma, beta, dy = inputs(9, size, far=False)
    y, dx, dgamma, dbeta = (np.empty_like(each) for each in (x, x, gamma, beta))
    saved = np.empty((9, 3 if centred else 1))
    mode = (_core.CENTRED if centred else 0) | (_core.FAST if rounding == "fast" else 0) | 0x3330
    assert _core.forward(x, gamma, beta if centred else None, y, saved, 1e-5, mode, 1)
    assert _core.backward(dy, x, gamma, saved, dx, dgamma, dbeta, 1e-5, mode, 1)
    by_driver = both_passes(
        *(np.asfortranarray(x), gamma, beta, np.asfortranarray(dy)),
        centred=centred,
        rounding=rounding,
    )
    assert by_driver[:3] == [y.tobytes(), dx.tobytes(), dgamma.tobytes()]


@of_each_norm
@of_each_mode
def test_changed_float64_x_is_detected(rounding: str, *, centred: bool) -> None:
    x, gamma, beta, dy = inputs(9, 64, far=False)
    _, saved = forward(x, gamma, beta, centred=centred, backend="native", rounding=rounding)
    before = x[3, 5]
    x[3, 5] += 0.5
    with pytest.raises(RuntimeError, match="x changed since the forward pass"):
        backward(dy, saved, centred=centred)
    x[3, 5] = before
    backward(dy, saved, centred=centred)


@of_each_norm
@of_each_mode
@pytest.mark.parametrize("backends", [("reference", "native"), ("native", "reference")], ids=str)
def test_saved_statistics_of_another_backend(
    backends: tuple[str, str], rounding: str, *, centred: bool
) -> None:
    x, gamma, beta, dy = inputs(9, 64)
    gradients = []
    for backend in backends:
        _, saved = forward(x, gamma, beta, centred=centred, backend=backend, rounding=rounding)
        gradients.append(backward(dy, saved, centred=centred, backend=backends[1]))
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
