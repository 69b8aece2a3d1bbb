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

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    @pytest.mark.parametrize("mode", MODES)
    def test_below_32_megabytes(self, direction: str, mode: str) -> None:
        assert min(ratios(direction, mode, "PyTorch", self.small)) > 1
        single = ratios(direction, mode, "PyTorch", lambda shape: shape.startswith("1x1x"))
        lowest, highest = (3, 5) if direction == "forward" else (1.3, 2.8)
        assert lowest <= min(single) <= max(single) <= highest

    def test_at_8_megabytes(self) -> None:
        for direction, said in (("forward", 1.2), ("backward", 1.5)):
            taken = milliseconds(direction)["4x512x1024"]
            assert round(taken["truenorm fast, out="] / taken["PyTorch"], 1) == said

    def test_from_32_megabytes_on(self) -> None:
        fast, correct = "truenorm fast, out=", "truenorm correct, out="
        behind = []
        for direction in ("forward", "backward"):
            for shape, taken in milliseconds(direction).items():
                rivals = [name for name in taken if name not in MODES]
                if self.large(shape):
                    behind += [
                        (direction, shape, name, f"{taken[fast] / taken[name]:.2f}")
                        for name in rivals
                        if taken[fast] >= taken[name]
                    ]
        assert behind == [("forward", "4x512x4096", "ONNX Runtime", "1.10")]
        for rival in ("PyTorch", "JAX"):
            for direction in ("forward", "backward"):
                assert max(ratios(direction, correct, rival, self.large)) < 1

    @pytest.mark.parametrize("direction", ["forward", "backward"])
    def test_textbooks(self, direction: str) -> None:
        plain, wide = TEXTBOOKS
        found = ratios(direction, wide, plain, lambda shape: megabytes(shape) >= 1)
        assert 2 <= min(found) <= max(found) <= 9
        for mode in MODES:
            for form in TEXTBOOKS:
                assert max(ratios(direction, mode, form, lambda s: megabytes(s) >= 1)) < 1
            ahead = ratios(direction, plain, mode, self.large)
            assert 3 <= min(ahead) <= max(ahead) <= 17
            single = ratios(direction, mode, plain, lambda shape: shape.startswith("1x1x"))
            assert 0.6 <= min(single) <= max(single) <= 1.8
            if "correct" in mode:
                (short,) = ratios(direction, mode, plain, lambda shape: shape == "2x128x64")
                assert short > 1

    def test_new_arrays(self) -> None:
        taken = milliseconds("forward")["8x1024x4096"]
        for mode in ("truenorm correct", "truenorm fast"):
            assert 1.8 < taken[mode] / taken[f"{mode}, out="] < 2.2


def test_the_figure_is_drawn_from_these_results() -> None:
    """It carries the date, and a mark for each contestant and shape in each panel."""
    text = (ROOT / "docs" / "figures" / "peers.svg").read_text(encoding="utf-8")
    assert RESULTS["machine"]["date"] in text
    assert ("not quiet" in text) != RESULTS["quiet"]
    for shape in milliseconds("forward"):
        assert f">{shape}<" in text
    for name in (*MODES, *TEXTBOOKS, "thinc", "JAX", "ONNX Runtime", "PyTorch (1)"):
        assert f">{name}<" in text
