"""The museum shows every named case, and which norms of packages fail it."""

import copy
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import museum
from shared.verify.quantized.planted import PLANTED
from truenorm.verify import case, check
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
NAMED: dict[str, list[str]] = {
    f"{kind}-{case['name']}": [] for own in OWN.values() for case in own for kind in FORMATS
}

WORSE = NAMED | {"float32-odd-width": ["y"]}


def row(name: str, operation: str) -> dict[str, Any]:
    """Return a row of a norm that passes everything."""
    verdicts = {"special values": "pass", "batch-invariant": "pass"}
    return {
        "name": name,
        "operation": operation,
        "outcome": "judged",
        "named": copy.deepcopy(NAMED),
        "verdicts": verdicts,
    }


def page(**changed: Any) -> str:
    """Return the page if the layer norm of JAX has other results."""
    rows = [row("torch", "layer_norm"), row("JAX", "layer_norm,eps=1e-5") | changed]
    rows += [row("torch rms", "rms_norm"), {"name": "late", "outcome": "too slow"}]
    rows += [row(name, "rms_norm") | {"named": WORSE} for name in ("a", "b")]
    return museum.page({"machine": {"date": "2001-02-03", "cpu": "an abacus"}, "rows": rows})


def cells(text: str, operation: str, name: str) -> str:
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


def test_each_link_of_the_matrix_has_its_exhibit() -> None:
    text = page()
    links = re.findall(r"^\| \[.*\]\(#([\w-]+)\) \|", text, re.MULTILINE)
    targets = re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE)
    assert len(set(targets)) == len(targets)
    extended = [each for own in OWN.values() for each in own if each.get("also")]
    assert set(links) < set(targets)
    assert len(links) == len(targets) - len(extended)
    assert "2001-02-03: quick level, an abacus" in text


def test_failing_norms() -> None:
    text = page(named=NAMED | {"float32-mean-2000": ["y", "dx"], "float32-zeros": ["dx"]})
    by_case = exhibits(text)
    assert "- **Fail in float32:** JAX (y, dx)" in by_case["float32-mean-2000"]
    assert "- **Fail in float32:** none" in by_case["float32-one-row"]
    assert cells(text, "layer-norm", "mean-2000") == "[1]{.grade-fail} | 2 | JAX"
    assert cells(text, "layer-norm", "one-row") == "[0]{.grade-pass} | 2 | -"
    assert cells(text, "rms-norm", "odd-width") == "[2]{.grade-fail} | 3 | all but torch rms"


def test_cases_of_a_verdict() -> None:
    """That y of a row is accurate does not say that its bits do not depend on the batch."""
    text = page(verdicts={"special values": "not judged", "batch-invariant": "warn"})
    by_case = exhibits(text)
    batch = by_case["float32-block-size-by-batch"]
    assert "- **Fail “batch-invariant” in at least one type:** JAX" in batch
    assert cells(text, "layer-norm", "block-size-by-batch") == "[1]{.grade-fail} | 2 | JAX"
    assert cells(text, "layer-norm", "nan-in-x") == "[0]{.grade-pass} | 1 | -"


@pytest.mark.parametrize("failure", museum.QUANTIZED_FAILURES, ids=lambda each: each.bug)
def test_a_case_shows_the_planted_bug(failure: museum.PlantedFailure) -> None:
    bug = PLANTED[failure.bug]
    assert (bug.operation, bug.dtype) == (failure.operation, "bfloat16")
    shown = case(failure.case, operation=failure.operation)
    subject = bug.kernel.subject(bug.dtype, recipe=bug.recipe)
    with np.errstate(all="ignore"), pytest.raises(AssertionError, match=re.escape(str(shown))):
        check(subject, shown)


def test_failures_of_planted_bugs_are_on_the_page() -> None:
    text = page()
    for failure in (*museum.QUANTIZED_FAILURES, *museum.GROUPED_FAILURES):
        assert f"`{failure.operation}` | `{failure.case}`" in text
        for source in failure.sources:
            assert f"[{source}](https://github.com/" in text
