"""The museum shows every named case, and which packages fail it."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

from benchmarks import museum
from truenorm.verify.types import FORMATS

ROOT = Path(__file__).parents[3]
OPERATIONS = ROOT / "src" / "truenorm" / "verify" / "norms"
FILES = {
    name: tomllib.loads((OPERATIONS / name / "cases.toml").read_text(encoding="utf-8"))
    for name in ("layer_norm", "rms_norm")
}
OWN = {
    name: [each for each in file["case"] if "as_in" not in each] for name, file in FILES.items()
}
"""The cases of each operation that no other has."""
NAMED = [f"{kind}-{case['name']}" for own in OWN.values() for case in own for kind in FORMATS]
BOARD: dict[str, Any] = {
    "machine": {"date": "2001-02-03", "cpu": "an abacus"},
    "level": "quick",
    "subjects": {
        key: {
            "versions": {"python": "3.11", key: "1.0"},
            "named": NAMED,
            "failing": {"y": [], "dx": []},
            "verdicts": {"special values": "pass", "batch-invariant": "pass"},
        }
        for key in ("torch", "jax")
    },
}


def page(**changed: Any) -> str:
    """Return the page if JAX has other results."""
    board = copy.deepcopy(BOARD)
    board["subjects"]["jax"] |= changed
    return museum.page(board, board)


def row(text: str, operation: str, name: str) -> str:
    """Return the row of an exhibit in the matrix, without its title."""
    (line,) = re.findall(rf"^\|.*\(#{operation}-{name}\) \| (.*) \|$", text, re.MULTILINE)
    return str(line)


def exhibits(page: str) -> dict[str, str]:
    """Return the text below each heading, by the name of its case."""
    parts = re.split(r"^##+ ", page, flags=re.MULTILINE)[1:]
    return {name[0]: part for part in parts if (name := re.findall(r"Case:\*\* `([^`]+)`", part))}


def test_all_entries_are_on_the_page() -> None:
    text = page()
    # What Markdown would take for its own has a backslash before it.
    plain = re.sub(r"\\([^\w\s])", r"\1", text)
    missing = [each for file in FILES.values() for each in file["not_a_case"]]
    for entry in [*OWN["layer_norm"], *OWN["rms_norm"], *missing]:
        for key in ("title", "failed", "reason"):
            assert entry.get(key, "") in plain, entry["title"]
        for source in entry.get("sources", []):
            number = source.partition("#")[2]
            assert re.search(rf"\[{re.escape(source)}\]\(https://github.com/\S+/{number}\)", text)
    assert text.count("- **Case:**") == len(OWN["layer_norm"]) + len(OWN["rms_norm"])
    for entry in FILES["rms_norm"]["case"]:
        assert "as_in" not in entry or f"`{entry['name']}`" in text


def test_each_link_of_the_matrix_has_its_exhibit() -> None:
    text = page()
    links = re.findall(r"^\| \[.*\]\(#([\w-]+)\) \|", text, re.MULTILINE)
    targets = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    assert len(set(targets)) == len(targets)
    extended = [each for own in OWN.values() for each in own if each.get("also")]
    assert set(links) < set(targets)
    assert len(links) == len(targets) - len(extended)
    assert text.index("](#") < text.index("### ")


def test_failing_subjects() -> None:
    text = page(
        failing={
            "y": ["float32-mean-2000"],
            "dx": ["float32-mean-2000", "float16-half-sum-of-squares", "float64-zeros"],
        }
    )
    by_case = exhibits(text)
    assert "- **Fail in float32:** JAX (y, dx)" in by_case["float32-mean-2000"]
    assert "- **Fail in float16:** JAX (dx)" in by_case["float16-half-sum-of-squares"]
    assert "- **Fail in float32:** none" in by_case["float32-zeros"]
    failed = "[pass]{.grade-pass} | [fail]{.grade-fail}"
    assert row(text, "layer-norm", "mean-2000") == failed
    assert row(text, "layer-norm", "half-sum-of-squares") == failed
    assert text.count("[fail]") == 2


def test_cases_of_a_verdict() -> None:
    """That y of a row is accurate does not say that its bits do not depend on the batch."""
    text = page(verdicts={"special values": "fail", "batch-invariant": "not judged"})
    by_case = exhibits(text)
    special = by_case["float32-nan-in-x"]
    assert "- **Fail “special values” in at least one type:** JAX" in special
    batch = by_case["float32-block-size-by-batch"]
    assert "- **Fail “batch-invariant” in at least one type:** none" in batch
    assert row(text, "layer-norm", "nan-in-x").endswith("[fail]{.grade-fail}")
    assert row(text, "layer-norm", "block-size-by-batch") == "[pass]{.grade-pass} | -"
