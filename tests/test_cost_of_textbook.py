"""The cost model against what NumPy is really asked to do, to the last byte."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from truenorm import textbook
from truenorm.cost import PassCost, layer_norm_cost, rms_norm_cost

Array = NDArray[Any]


class Counter:
    """FLOPs, and bytes read and written, of the operations on watched arrays."""

    def __init__(self) -> None:
        self.flops = self.bytes_read = self.bytes_written = 0

    def watch(self, array: Array) -> "Watched":
        watched = array.view(Watched)
        watched.counter = self
        return watched

    def note(self, method: str, inputs: list[Array], result: Array) -> None:
        self.flops += inputs[0].size if method == "reduce" else result.size
        self.bytes_read += sum(array.nbytes for array in inputs)
        self.bytes_written += result.nbytes

    def matches(self, counted: PassCost) -> bool:
        return (self.flops, self.bytes_read, self.bytes_written) == (
            counted.flops,
            counted.bytes_read,
            counted.bytes_written,
        )


class Watched(np.ndarray[tuple[Any, ...], np.dtype[Any]]):
    """An array that tells its counter of every operation on it."""

    counter: Counter

    def __array_finalize__(self, parent: object) -> None:
        self.counter = getattr(parent, "counter", Counter())

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        plain = {id(value): np.asarray(value) for value in inputs if isinstance(value, np.ndarray)}
        if options.get("out"):
            options["out"] = tuple(np.asarray(value) for value in options["out"])
        operands = [plain.get(id(value), value) for value in inputs]
        result = np.asarray(getattr(ufunc, method)(*operands, **options))
        self.counter.note(method, list(plain.values()), result)
        return self.counter.watch(result)


def data(shape: tuple[int, ...], dtype: str) -> tuple[Array, Array, Array, Array]:
    """Return x, dy, gamma and beta."""
    random = np.random.default_rng(0)
    x, dy = random.standard_normal((2, *shape)).astype(dtype)
    gamma, beta = random.standard_normal((2, shape[-1])).astype(dtype)
    return x, dy, gamma, beta


def of_textbook(shape: tuple[int, ...], dtype: str, keep: str) -> tuple[Counter, Counter]:
    """Run the textbook form, xhat computed again where x is what is kept."""
    x, dy, gamma, beta = data(shape, dtype)
    forward, backward = Counter(), Counter()
    _, kept = textbook.forward(forward.watch(x), gamma, beta)
    rstd = backward.watch(np.asarray(kept.rstd))
    xhat: Any = backward.watch(np.asarray(kept.xhat))
    if keep == "x":
        xhat = (backward.watch(x) - x.mean(axis=-1, keepdims=True)) * rstd
    textbook.backward(backward.watch(dy), textbook.Saved(xhat, rstd, gamma))
    return forward, backward


@pytest.mark.parametrize("keep", ["x", "xhat"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 6), (7,), (1, 1), (2, 3, 1, 4)])
def test_textbook_against_the_counter(shape: tuple[int, ...], dtype: str, keep: Any) -> None:
    forward, backward = of_textbook(shape, dtype, keep)
    cost = layer_norm_cost(shape, dtype, "textbook", keep)
    assert forward.matches(cost.forward)
    assert backward.matches(cost.backward)


@pytest.mark.parametrize("keep", ["x", "xhat"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (7,), (1, 1)])
def test_rms_norm_against_the_counter(shape: tuple[int, ...], keep: Any) -> None:
    x, dy, gamma, _ = data(shape, "float32")
    forward, backward = Counter(), Counter()
    _, kept = textbook.rms_norm_forward(forward.watch(x), gamma)
    rstd = backward.watch(np.asarray(kept.rstd))
    xhat: Any = backward.watch(np.asarray(kept.xhat))
    if keep == "x":
        xhat = backward.watch(x) * rstd
    textbook.rms_norm_backward(backward.watch(dy), textbook.Saved(xhat, rstd, gamma))
    cost = rms_norm_cost(shape, "float32", "textbook", keep)
    assert forward.matches(cost.forward)
    assert backward.matches(cost.backward)


def test_rms_norm_in_one_sweep() -> None:
    """Counted by hand: x, gamma; y, a number a row / x, dy, that number, gamma; dx, dgamma."""
    cost = rms_norm_cost((40, 6))
    array, row, column, shares = 4 * 40 * 6, 4 * 40, 4 * 6, 3 * 4 * 6
    assert cost.kept == row
    assert cost.forward.bytes_moved == 2 * array + column + row
    assert cost.backward.bytes_moved == 3 * array + row + 2 * column + 2 * shares


def test_float16_differs_by_what_numpy_widens() -> None:
    """NumPy adds float16 along rows in float32: two bytes more for each number of a row."""
    forward, _ = of_textbook((6, 8), "float16", "xhat")
    cost = layer_norm_cost((6, 8), "float16", "textbook", "xhat")
    means, rows, more = 2, 6, 2
    # A sum is written once and read and written once more, to be divided.
    assert forward.bytes_written - cost.forward.bytes_written == means * rows * 2 * more
    assert forward.bytes_read - cost.forward.bytes_read == means * rows * more
    assert forward.flops == cost.forward.flops


def fused_forward(x: Any, gamma: Array, beta: Array) -> Any:
    """Do the arithmetic of the fused kernel of docs/gpu-kernel.md."""
    shifted = x - x.mean(axis=-1, keepdims=True)
    centred = shifted - shifted.mean(axis=-1, keepdims=True)
    rstd = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5)
    return gamma * (centred * rstd) + beta


def test_flops_of_the_fused_form() -> None:
    x, _, gamma, beta = data((40, 6), "float32")
    counter = Counter()
    fused_forward(counter.watch(x), gamma, beta)
    cost = layer_norm_cost((40, 6))
    assert counter.flops == cost.forward.flops
    # Rebuilding xhat from x and a pair is three operations an element, adding up the shares of
    # dgamma and dbeta, of which there are three of 16, 16 and 8 rows, one for each number.
    from_xhat = layer_norm_cost((40, 6), form="textbook", keep="xhat").backward.flops
    assert cost.backward.flops == from_xhat + 3 * 40 * 6 + 2 * 3 * 6
    assert layer_norm_cost((40, 6), keep="xhat").backward.flops == from_xhat + 2 * 3 * 6


BUFFER = np.getbufsize() * 8 + 4096
"""What NumPy allocates to broadcast, whatever the size of the arrays, and Python's own objects."""


def peak_during(call: Callable[..., Any], *arguments: Any) -> tuple[int, Any]:
    tracemalloc.start()
    try:
        result = call(*arguments)
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("shape", "reused"), [((15, 2, 1024), 0), ((16, 64, 1024), 1)])
def test_peak_against_tracemalloc(shape: tuple[int, ...], reused: int) -> None:
    """Above 256 KB NumPy may compute g - mean_g - ... in place, and need one array less."""
    x, dy, gamma, beta = data(shape, "float64")
    textbook.forward(x, gamma, beta)  # whatever is allocated but once
    forward, (_, saved) = peak_during(textbook.forward, x, gamma, beta)
    backward, _ = peak_during(textbook.backward, dy, saved)
    cost = layer_norm_cost(shape, "float64", "textbook", "xhat")
    assert 0 <= forward - cost.forward.peak <= BUFFER
    assert -reused * x.nbytes <= backward - cost.backward.peak <= BUFFER
    assert 0.3 * x.nbytes > BUFFER  # one array more or less would be seen


def test_peak_of_rms_norm_against_tracemalloc() -> None:
    x, dy, gamma, _ = data((15, 2, 1024), "float64")
    textbook.rms_norm_forward(x, gamma)  # whatever is allocated but once
    forward, (_, saved) = peak_during(textbook.rms_norm_forward, x, gamma)
    backward, _ = peak_during(textbook.rms_norm_backward, dy, saved)
    cost = rms_norm_cost(x.shape, "float64", "textbook", "xhat")
    assert 0 <= forward - cost.forward.peak <= BUFFER
    assert 0 <= backward - cost.backward.peak <= BUFFER


def test_kept_and_referenced() -> None:
    x, _, gamma, beta = data((6, 8), "float32")
    _, saved = textbook.forward(x, gamma, beta)
    cost = layer_norm_cost((6, 8), "float32", "textbook", "xhat")
    assert cost.kept == saved.xhat.nbytes + saved.rstd.nbytes
    assert cost.referenced == saved.gamma.nbytes
    assert layer_norm_cost((6, 8)).referenced == gamma.nbytes + x.nbytes
