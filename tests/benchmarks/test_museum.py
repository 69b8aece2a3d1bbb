"""The page "Museum of failures" is what its command writes, and leaves nothing out."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks import museum
from benchmarks.scoreboard import BOARDS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "judge" / "museum.md"
OPERATIONS = ROOT / "src" / "truenorm" / "verify" / "operations"
FILES = {
    name: tomllib.loads((OPERATIONS / name / "cases.toml").read_text(encoding="utf-8"))
    for name in ("layer_norm", "rms_norm")
}
OWN = {
    name: [each for each in file["case"] if "as_in" not in each] for name, file in FILES.items()
}
"""The cases of each operation that no other has."""
BOARD: dict[str, Any] = {
    "machine": {"date": "2001-02-03", "cpu": "an abacus"},
    "level": "quick",
    "subjects": {
        key: {
            "name": f"{key} [1]",
            "versions": {"python": "3.11", key: "1.0"},
            "failing": {"y": [], "dx": []},
            "verdicts": {"special values": "pass", "batch-invariant": "pass"},
        }
        for key in ("first", "second")
    },
}


def exhibits(page: str) -> dict[str, str]:
    """Return the text below each heading, by the name of its case."""
    parts = re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]
    return {name[0]: part for part in parts if (name := re.findall(r"Case:\*\* `([^`]+)`", part))}


def test_the_committed_page_is_what_the_command_writes() -> None:
    again = "run python -m benchmarks.museum"
    assert PAGE.read_text(encoding="utf-8") == museum.page(museum.scoreboards()), again


def test_all_entries_are_on_the_page() -> None:
    page = museum.page({})
    # What Markdown would take for its own has a backslash before it.
    text = re.sub(r"\\([^\w\s])", r"\1", page)
    missing = [each for file in FILES.values() for each in file["not_a_case"]]
    for entry in [*OWN["layer_norm"], *OWN["rms_norm"], *missing]:
        for key in ("title", "failed", "reason"):
            assert entry.get(key, "") in text, entry["title"]
        for source in entry.get("sources", []):
            number = source.partition("#")[2]
            assert re.search(rf"\[{re.escape(source)}\]\(https://github.com/\S+/{number}\)", page)
    assert page.count("- **Case:**") == len(OWN["layer_norm"]) + len(OWN["rms_norm"])
    for entry in FILES["rms_norm"]["case"]:
        assert "as_in" not in entry or f"`{entry['name']}`" in page


def test_markdown_is_escaped() -> None:
    """Two stars in a line would start italics."""
    (part,) = (text for name, text in exhibits(museum.page({})).items() if "two-equal" in name)
    assert r"x\*scale" in part


def test_page_without_a_scoreboard() -> None:
    assert "today" not in museum.page({})


def test_missing_scoreboard_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = BOARDS["rms_norm"]._replace(results=tmp_path / "none.json")
    monkeypatch.setitem(BOARDS, "rms_norm", missing)
    assert list(museum.scoreboards()) == ["layer_norm"]
    assert "run python -m benchmarks.scoreboard --operation rms_norm" in capsys.readouterr().err


def test_failing_subjects() -> None:
    board = copy.deepcopy(BOARD)
    board["subjects"]["second"]["failing"] = {
        "y": ["float32-mean-2000"],
        "dx": ["float32-mean-2000", "float16-half-sum-of-squares", "float64-zeros"],
    }
    by_case = exhibits(museum.page({"layer_norm": board}))
    assert "- **Fail in float32 today:** second \\[1\\] (y, dx)" in by_case["float32-mean-2000"]
    only_half = by_case["float16-half-sum-of-squares"]
    assert "- **Fail in float16 today:** second \\[1\\] (dx)" in only_half
    assert "- **Fail in float32 today:** none" in by_case["float32-zeros"]
    assert sum("second" in part for part in by_case.values()) == 2


def test_cases_of_a_verdict() -> None:
    """That y of a row is accurate does not say that its bits do not depend on the batch."""
    board = copy.deepcopy(BOARD)
    board["subjects"]["first"]["verdicts"]["batch-invariant"] = "fail"
    board["subjects"]["second"]["verdicts"]["special values"] = "fail"
    by_case = exhibits(museum.page({"layer_norm": board}))
    place = "today, in at least one type:**"
    batch = by_case["float32-block-size-by-batch"]
    assert f"- **Fail “batch-invariant” {place} first \\[1\\]" in batch
    assert f"- **Fail “special values” {place} second \\[1\\]" in by_case["float32-nan-in-x"]


def test_cases_that_were_not_run() -> None:
    extended = {f"float32-{case['name']}" for case in OWN["layer_norm"] if case.get("also")}
    of_layer_norm = museum.page({"layer_norm": BOARD}).partition("## RMSNorm")[0]
    by_case = exhibits(of_layer_norm)
    assert extended
    assert {name for name, part in by_case.items() if "today" not in part} == extended


def test_each_operation_has_its_own_scoreboard() -> None:
    board = copy.deepcopy(BOARD)
    board["subjects"]["first"]["failing"] = {"y": ["float32-odd-width"]}
    before, _, after = museum.page({"rms_norm": board}).partition("## RMSNorm")
    assert "today" not in before
    assert "- **Fail in float32 today:** first \\[1\\] (y)" in exhibits(after)["float32-odd-width"]


def test_date_and_versions_are_at_the_top() -> None:
    top = museum.page({"layer_norm": BOARD}).partition("## ")[0]
    assert "found on 2001-02-03" in top
    assert "an abacus, python 3.11." in top
    assert "| second \\[1\\] | second 1.0 |" in top
