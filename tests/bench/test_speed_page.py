"""docs/speed.md says what benchmarks/results/peers.json says, and claims no more."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks import peers_figure
from benchmarks.pages import filled

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
RESULTS: dict[str, Any] = json.loads(
    (ROOT / "benchmarks" / "results" / "peers.json").read_text(encoding="utf-8")
)
MODES = ("truenorm correct, out=", "truenorm correct", "truenorm fast, out=", "truenorm fast")
TEXTBOOKS = ("textbook NumPy", "textbook in float64, then cast")


def milliseconds(direction: str) -> dict[str, dict[str, float]]:
    """Return the medians by shape and contestant."""
    found: dict[str, dict[str, float]] = {}
    for figure in RESULTS["figures"]:
        if figure["direction"] == direction:
            shape = "x".join(str(length) for length in figure["shape"])
            found.setdefault(shape, {})[figure["contestant"]] = figure["p50"] * 1000
    return found


def megabytes(shape: str) -> float:
    return 4e-6 * math.prod(map(int, shape.split("x")))


def test_who_writes_to_an_array_that_exists() -> None:
    """The page names them in a sentence."""
    places = {(figure["contestant"], figure["writes_to"]) for figure in RESULTS["figures"]}
    existing = {name for name, place in places if place == "existing array"}
    assert existing == {"ONNX Runtime", *(mode for mode in MODES if "out=" in mode)}
    assert "ONNX Runtime and the lines with out= write to an array that exists" in PAGE


def test_tables_are_what_the_command_makes_of_the_results() -> None:
    assert filled(PAGE, peers_figure.tables(RESULTS)) == PAGE


def ratios(direction: str, mode: str, rival: str, where: Any) -> list[float]:
    return [
        taken[mode] / taken[rival]
        for shape, taken in milliseconds(direction).items()
        if where(shape)
    ]


class TestInShort:
    """The sentences at the top, one by one."""

    def small(self, shape: str) -> bool:
        return megabytes(shape) < 32

    def large(self, shape: str) -> bool:
        return megabytes(shape) >= 32

    @pytest.mark.parametrize(
        ("direction", "mode", "one_row", "more_rows"),
        [
            ("forward", "truenorm fast, out=", (1.0, 1.3), (0.8, 1.4)),
            ("forward", "truenorm correct, out=", (1.3, 1.6), (1.3, 1.7)),
            ("backward", "truenorm fast, out=", (0.4, 0.5), (0.7, 1.0)),
            ("backward", "truenorm correct, out=", (0.6, 1.3), (1.0, 2.3)),
        ],
    )
    def test_below_32_megabytes(
        self, direction: str, mode: str, one_row: tuple[float, ...], more_rows: tuple[float, ...]
    ) -> None:
        one = ratios(direction, mode, "PyTorch", lambda shape: shape.startswith("1x1x"))
        assert (round(min(one), 1), round(max(one), 1)) == one_row
        more = ratios(
            direction, mode, "PyTorch", lambda s: self.small(s) and not s.startswith("1x1x")
        )
        assert (round(min(more), 1), round(max(more), 1)) == more_rows

    def test_from_32_megabytes_on(self) -> None:
        fast, correct = "truenorm fast, out=", "truenorm correct, out="
        for direction in ("forward", "backward"):
            rivals = [*TEXTBOOKS, "thinc", "PyTorch", "JAX"]
            for rival in rivals:
                assert max(ratios(direction, correct, rival, self.large)) < 1
                assert max(ratios(direction, fast, rival, self.large)) < 1
        assert max(ratios("forward", fast, "ONNX Runtime", self.large)) < 1
        beside_onnx = ratios("forward", correct, "ONNX Runtime", self.large)
        assert {round(each, 1) for each in beside_onnx} <= {1.1, 1.2}

    def test_textbooks(self) -> None:
        plain, wide = TEXTBOOKS
        one, large = [], []
        for direction in ("forward", "backward"):
            widened = ratios(direction, wide, plain, lambda _: True)
            assert min(widened) > 1.2
            for mode in ("truenorm fast, out=", "truenorm correct, out="):
                one += ratios(direction, plain, mode, lambda shape: shape.startswith("1x1x"))
                large += ratios(direction, plain, mode, self.large)
                assert min(ratios(direction, plain, mode, lambda _: True)) > 1
        assert (round(min(one), 1), round(max(one), 1)) == (1.1, 5.5)
        assert (round(min(large)), round(max(large))) == (8, 18)

    def test_new_arrays(self) -> None:
        taken = milliseconds("forward")["8x1024x4096"]
        for mode in ("truenorm correct", "truenorm fast"):
            assert taken[mode] / taken[f"{mode}, out="] > 2


def test_the_figure_is_drawn_from_these_results() -> None:
    """It carries the date, and a mark for each contestant and shape in each panel."""
    text = (ROOT / "docs" / "figures" / "peers.svg").read_text(encoding="utf-8")
    assert RESULTS["machine"]["date"] in text
    assert ("not quiet" in text) != RESULTS["quiet"]
    for shape in milliseconds("forward"):
        assert f">{shape}<" in text
    for name in (*MODES, *TEXTBOOKS, "thinc", "JAX", "ONNX Runtime", "PyTorch (1)"):
        assert f">{name}<" in text
