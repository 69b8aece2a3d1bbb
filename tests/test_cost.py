"""The cost model against counts by hand, and the tables of docs/time-and-memory.md against it."""

from pathlib import Path
from typing import Any

import pytest

from truenorm.cost import (
    PassCost,
    Step,
    layer_norm_cost,
    measure_bandwidth,
    measure_flops_rate,
    page,
)

PAGE = Path(__file__).parents[1] / "docs" / "time-and-memory.md"
ARRAY, ROW, COLUMN = 8 * 1024 * 4096 * 4, 8 * 1024 * 4, 4096 * 4
SHARES = 2 * 512 * COLUMN  # of dgamma and dbeta; 8192 rows in blocks of 16


@pytest.mark.parametrize(
    ("form", "keep", "forward", "backward"),
    [
        # x, gamma, beta; y and what is kept / x or xhat, dy, statistics, gamma; dx, dgamma, dbeta
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
def test_how_many_shares(rows: int, shares: int) -> None:
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


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for whatever is measured: the rates are then the work itself."""
    monkeypatch.setattr(page, "seconds_of", lambda work: (work(), 1.0)[1])
    assert measure_bandwidth() == measure_bandwidth(3) == 2 * 64e6
    assert measure_flops_rate("float32") == measure_flops_rate("float64") == 2 * 1024**3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"shape": (8, 0, 4)}, r"the shape \(8, 0, 4\) has no elements"),
        ({"shape": (8, -1)}, "at least 1"),
        ({"shape": ()}, "no elements"),
        ({"dtype": "int8"}, "dtype is 'int8': choose one of float16, bfloat16, float32, float64"),
        ({"form": "naive"}, "form is 'naive': choose one of textbook, blocked, fused"),
        ({"keep": "y"}, "keep is 'y': choose one of x, xhat"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        layer_norm_cost(**{"shape": (2, 3), **arguments})


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
def test_the_tables_of_the_page(heading: str) -> None:
    cost = layer_norm_cost((2**10, 2**10), "float32", "textbook", "xhat")
    counted = cost.passes[heading.lower()]
    expected = [
        [
            step.equation,
            step.name.strip("()"),
            in_arrays(step.flops),
            in_arrays(step.bytes_read, 4),
            in_arrays(step.bytes_written, 4),
        ]
        for step in counted.steps
        if step.equation != "D4"  # which has one number a row
    ]
    totals = (counted.flops, 1), (counted.bytes_read, 4), (counted.bytes_written, 4)
    total = ["total", "", *(in_arrays(*each) for each in totals)]
    assert table_under(heading) == [*expected, total]


def test_the_table_of_the_forms() -> None:
    """For which it takes a shape where what is smaller does not show."""
    for name, flops, words, intensity in table_under("What that means"):
        direction, form = name.split(", ")
        keep: Any = "xhat" if form == "textbook" else "x"
        cost = layer_norm_cost((2**20, 2**12), "float32", form, keep)  # type: ignore[arg-type]
        counted = cost.passes[direction]
        elements = 2**32
        assert flops == f"{round(counted.flops / elements)} N"
        assert words == f"{round(counted.bytes_moved / 4 / elements)} N"
        assert intensity == f"{counted.intensity:.2f}"


def test_kept_memory_of_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    cost = layer_norm_cost((8, 1024, 4096), "float32", "textbook", "xhat")
    rstd = 8 * 1024 * 4
    assert f"| xhat | N | {cost.kept - rstd:,} |" in text
    assert f"| rstd | R | {rstd:,} |" in text
