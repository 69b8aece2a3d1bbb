"""The page of holes is what its file says, and the file has the holes that were known."""

import json
from typing import Any

import pytest

from benchmarks.holes.__main__ import RESULTS
from benchmarks.holes.listed import LISTED
from benchmarks.holes.page import PAGE, page

PUBLISHED: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
AUDITS = {(each["project"], each["what"]): each for each in PUBLISHED["audits"]}


def passed(project: str, what: str) -> dict[str, Any]:
    outcomes = AUDITS[project, what]["outcomes"]
    return {each["name"]: each for each in outcomes if not each["caught"]}


def test_the_page_is_the_file() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(PUBLISHED)


def test_everybody_is_in_the_file() -> None:
    assert list(AUDITS) == [(each.project, each.what) for each in LISTED]
    for each in LISTED:
        found = AUDITS[each.project, each.what]
        assert (found["taken"], found["command"]) == (each.taken, each.command)


@pytest.mark.parametrize(
    ("project", "what", "kernel"),
    [
        ("vLLM", "RMSNorm, H = 5120", "no reduction"),
        ("vLLM", "add + RMSNorm, H = 768", "zeros for the sum"),
        ("vLLM", "add + RMSNorm, H = 5120", "zeros for the sum"),
        ("FlashInfer", "RMSNorm, quantized", "zeros"),
        ("Liger", "RMSNorm", "no gamma"),
        ("apex", "layer norm", "zeros for dgamma"),
        ("KernelBench", "40_LayerNorm", "no reduction, uniform"),
    ],
)
def test_holes(project: str, what: str, kernel: str) -> None:
    outcome = passed(project, what)[kernel]
    assert outcome["witness"]["symptom"]


def test_none_in_strict_tests() -> None:
    for project, what in AUDITS:
        if project.startswith("none"):
            assert passed(project, what) == {}, what
