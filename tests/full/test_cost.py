"""The cost model: counts by hand, NumPy's operations, tables of docs/learn/time-and-memory.md."""

import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from truenorm import textbook
from truenorm.cost import Cost, PassCost, Step, layer_norm_cost, rms_norm_cost

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "time-and-memory.md"
ARRAY, ROW, COLUMN = 8 * 1024 * 4096 * 4, 8 * 1024 * 4, 4096 * 4
SHARES = 2 * 512 * COLUMN  # of dgamma and dbeta; 8192 rows in blocks of 16


@pytest.mark.parametrize(
    ("form", "keep", "forward", "backward"),
    [
        # x, gamma, beta; y, saved array / x or xhat, dy, statistics, gamma; dx, dgamma, dbeta
        ("blocked", "x", (1, 0, 2, 1, 2, 0), (2, 2, 1, 1, 0, 2)),
        ("blocked", "xhat", (1, 0, 2, 2, 1, 0), (2, 1, 1, 1, 0, 2)),
        ("fused", "x", (1, 0, 2, 1, 3, 0), (2, 3, 1, 1, 0, 2)),
        ("fused", "xhat", (1, 0, 2, 2, 1, 0), (2, 1, 1, 1, 0, 2)),
    ],
)
def test_traffic_of_one_sweep(
    form: Any, keep: Any, forward: tuple[int, ...], backward: tuple[int, ...]
) -> None:
    """Counted by hand, in arrays, rows and columns: what is read, then what is written."""
    cost = layer_norm_cost((8, 1024, 4096), form=form, keep=keep)
    shares = SHARES if form == "fused" else 0
    sizes = (ARRAY, ROW, COLUMN)
    for counted, arrays, more in ((cost.forward, forward, 0), (cost.backward, backward, shares)):
        read = sum(n * size for n, size in zip(arrays[:3], sizes, strict=True))
        written = sum(n * size for n, size in zip(arrays[3:], sizes, strict=True))
        assert (counted.bytes_read, counted.bytes_written) == (read + more, written + more)


def test_statistics_and_shares_of_narrow_types_are_float32() -> None:
    wide, narrow = (layer_norm_cost((40, 6), dtype) for dtype in ("float32", "bfloat16"))
    assert narrow.kept == wide.kept == 3 * 40 * 4
    assert layer_norm_cost((40, 6), "float64").kept == 3 * 40 * 8
    assert narrow.forward.bytes_moved == 2 * (40 * 6 + 40 * 6 + 2 * 6) + 3 * 40 * 4
    # Both arrays and gamma; 3 shares of 6 columns, twice, written and read; the three results.
    shares = 2 * 2 * 3 * 6 * 4
    assert narrow.backward.bytes_moved == (2 * (3 * 40 * 6 + 6 + 2 * 6) + 3 * 40 * 4 + shares)


@pytest.mark.parametrize(
    ("rows", "shares"), [(1, 1), (16, 1), (17, 2), (16384, 1024), (32768, 1024)]
)
def test_number_of_shares(rows: int, shares: int) -> None:
    """They are read once more, by the step that adds them."""
    cost = layer_norm_cost((rows, 8), keep="xhat")
    assert [step.bytes_read for step in cost.backward.steps[-2:]] == [shares * 8 * 4] * 2


def test_peak_of_both_passes() -> None:
    textbook_form = layer_norm_cost((40, 6), form="textbook", keep="xhat")
    assert textbook_form.peak == textbook_form.kept + textbook_form.backward.peak
    fused = layer_norm_cost((40, 6), keep="xhat")
    results, shares = (40 * 6 + 2 * 6) * 4, 2 * 3 * 6 * 4
    assert fused.forward.peak == (2 * 40 * 6 + 40) * 4
    assert fused.backward.peak == results + shares
    assert fused.peak == fused.kept + fused.backward.peak


def test_peak_of_blocks_does_not_grow_with_the_rows() -> None:
    """What a block needs is 2**16 elements a temporary, six of them where x is kept."""
    cost = layer_norm_cost((2**12, 2**10), form="blocked")
    results = 4 * (2**22 + 2 * 2**10)
    assert 6 * 4 * 2**16 <= cost.backward.peak - results <= 6.1 * 4 * 2**16
    few = layer_norm_cost((3, 5), form="blocked")  # a block is no larger than x
    assert few.forward.peak <= 4 * (3 * 5 * 6 + 3 * 5)


def test_seconds() -> None:
    """One sweep waits for the slower of the two; separate steps each for their own."""
    steps = (Step("D1", "", 100, 30, 10, 0), Step("D2", "", 10, 30, 30, 0))
    assert PassCost(steps, one_sweep=True).seconds(10, 5) == max(100 / 10, 110 / 5)
    assert PassCost(steps, one_sweep=False).seconds(10, 5) == 100 / 5 + 60 / 10
    assert PassCost(steps, one_sweep=False).seconds(10) == 100 / 10
    assert PassCost(steps, one_sweep=True).intensity == 110 / 100


@pytest.mark.parametrize("form", ["textbook", "blocked", "fused"])
def test_seconds_of_both_passes(form: Any) -> None:
    cost = layer_norm_cost((40, 6), form=form)
    assert cost.forward.one_sweep is cost.backward.one_sweep is (form != "textbook")
    assert cost.seconds(1e9) == pytest.approx(cost.bytes_moved / 1e9)
    assert cost.seconds(1e9, 1) == pytest.approx(cost.flops)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (8, 0, 4)}, r"the shape \(8, 0, 4\) has no elements"),
        ({"shape": (8, -1)}, "at least 1"),
        ({"shape": ()}, "no elements"),
        ({"dtype": "int8"}, "dtype must be one of float16, .*, float64; got 'int8'"),
        ({"form": "naive"}, "form must be one of textbook, blocked, fused; got 'naive'"),
        ({"keep": "y"}, "keep must be one of x, xhat; got 'y'"),
    ],
)
def test_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer_norm_cost(**{"shape": (2, 3), **arguments})


@pytest.mark.parametrize("cost_of", [layer_norm_cost, rms_norm_cost])
@pytest.mark.parametrize("shape", [None, 3, "a", ("a",), (2.5, 3), (2, None)])
def test_shapes_of_another_type(cost_of: Callable[..., Cost], shape: Any) -> None:
    message = re.escape(f"shape must be a list or tuple of whole numbers; got {shape!r}")
    with pytest.raises(TypeError, match=message):
        cost_of(shape)


def table_under(heading: str) -> list[list[str]]:
    """Return the cells of the first table under a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = section.split("\n|", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" *`()") for cell in line.strip("|").split("|")] for line in table]


def in_arrays(number: int, item: int = 1) -> str:
    """Return a number of FLOPs or bytes as the page has it: in arrays of N elements."""
    arrays = round(number / (2**20 * item))
    return "" if not arrays else "N" if arrays == 1 else f"{arrays} N"


@pytest.mark.parametrize("heading", ["Forward", "Backward"])
def test_tables_of_the_page(heading: str) -> None:
    cost = layer_norm_cost((2**10, 2**10), "float32", "textbook", "xhat")
    counted = cost.passes[heading.lower()]

    def cells(of: Step | PassCost) -> list[str]:
        flops, *moved = of.flops, of.bytes_read, of.bytes_written
        return [in_arrays(flops), *(in_arrays(each, 4) for each in moved)]

    expected = [
        [step.equation, step.name.strip("()"), *cells(step)]
        for step in counted.steps
        if step.equation != "D4"  # which has one number a row
    ]
    assert table_under(heading) == [*expected, ["total", "", *cells(counted)]]


def test_table_of_the_forms() -> None:
    """For which it takes a shape where what is smaller does not show."""
    for name, flops, words, intensity in table_under("Arithmetic and memory traffic"):
        direction, form = name.split(", ")
        keep: Any = "xhat" if form == "textbook" else "x"
        cost = layer_norm_cost((2**20, 2**12), "float32", form, keep)  # type: ignore[arg-type]
        counted = cost.passes[direction]
        elements = 2**32
        assert flops == f"{round(counted.flops / elements)} N"
        assert words == f"{round(counted.bytes_moved / 4 / elements)} N"
        assert intensity == f"{counted.intensity:.2f}"


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
        return all(getattr(counted, name) == value for name, value in vars(self).items())


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


NORMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., Cost], int]] = {
    "layer_norm": (textbook.forward, textbook.backward, layer_norm_cost, 2),
    "rms_norm": (textbook.rms_norm_forward, textbook.rms_norm_backward, rms_norm_cost, 1),
}
"""Both passes of the textbook, the count, and the number of parameters."""


def of_textbook(
    norm: str, shape: tuple[int, ...], dtype: str, keep: str
) -> tuple[Counter, Counter]:
    """Run the textbook form, xhat computed again where x is saved."""
    x, dy, *parameters = data(shape, dtype)
    gamma = parameters[0]
    forward, backward = Counter(), Counter()
    run_forward, run_backward, _, count = NORMS[norm]
    _, kept = run_forward(forward.watch(x), *parameters[:count])
    rstd = backward.watch(np.asarray(kept.rstd))
    xhat: Any = backward.watch(np.asarray(kept.xhat))
    if keep == "x":
        watched: Any = backward.watch(x)
        centred = watched - x.mean(axis=-1, keepdims=True) if norm == "layer_norm" else watched
        xhat = centred * rstd
    run_backward(backward.watch(dy), textbook.Saved(xhat, rstd, gamma))
    return forward, backward


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("keep", ["x", "xhat"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 6), (7,), (1, 1), (2, 3, 1, 4)])
def test_textbook_against_the_counter(
    norm: str, shape: tuple[int, ...], dtype: str, keep: str
) -> None:
    forward, backward = of_textbook(norm, shape, dtype, keep)
    cost = NORMS[norm][2](shape, dtype, "textbook", keep)
    assert forward.matches(cost.forward)
    assert backward.matches(cost.backward)


def test_rms_norm_in_one_sweep() -> None:
    """Counted by hand: x, gamma; y, a number a row / x, dy, that number, gamma; dx, dgamma."""
    cost = rms_norm_cost((40, 6))
    array, row, column, shares = 4 * 40 * 6, 4 * 40, 4 * 6, 3 * 4 * 6
    assert cost.kept == row
    assert cost.forward.bytes_moved == 2 * array + column + row
    assert cost.backward.bytes_moved == 3 * array + row + 2 * column + 2 * shares


def fused_forward(x: Any, gamma: Array, beta: Array) -> Any:
    """Do the arithmetic of the fused kernel of docs/learn/fuse.md."""
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


@pytest.mark.parametrize(
    ("norm", "shape", "reused"),
    [
        ("layer_norm", (15, 2, 1024), 0),
        ("layer_norm", (16, 64, 1024), 1),
        ("rms_norm", (15, 2, 1024), 0),
    ],
)
def test_peak_against_tracemalloc(norm: str, shape: tuple[int, ...], reused: int) -> None:
    """Above 256 KB NumPy may compute g - mean_g - ... in place, and need one array less."""
    run_forward, run_backward, cost_of, count = NORMS[norm]
    x, dy, *parameters = data(shape, "float64")
    run_forward(x, *parameters[:count])  # whatever is allocated but once
    forward, (_, saved) = peak_during(run_forward, x, *parameters[:count])
    backward, _ = peak_during(run_backward, dy, saved)
    cost = cost_of(shape, "float64", "textbook", "xhat")
    assert 0 <= forward - cost.forward.peak <= BUFFER
    assert -reused * x.nbytes <= backward - cost.backward.peak <= BUFFER
    assert 0.3 * x.nbytes > BUFFER  # one array more or less would be seen


def test_kept_and_referenced() -> None:
    x, _, gamma, beta = data((6, 8), "float32")
    _, saved = textbook.forward(x, gamma, beta)
    cost = layer_norm_cost((6, 8), "float32", "textbook", "xhat")
    assert cost.kept == saved.xhat.nbytes + saved.rstd.nbytes
    assert cost.referenced == saved.gamma.nbytes
    assert layer_norm_cost((6, 8)).referenced == gamma.nbytes + x.nbytes
