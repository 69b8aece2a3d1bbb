"""Terms that the project has replaced are gone, in code, comments, messages and pages."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SUFFIXES = {".c", ".h", ".html", ".md", ".py", ".pyi", ".toml", ".yml"}
EVERYWHERE = ("src", "tests", "benchmarks", "examples", "docs")
REPLACED = {
    r"\bwho(ever|m|se turn)?\b": "name the code, the array or the caller",
    r"\bnobody\b": "name the code, the array or the caller",
    r"\blook_again\b|\blook(s|ed)? again\b|\bsecond look\b": "tier 2",
    r"(?-i:\bRefusedRows\b|\bNeverRefuses\b|\bREFUSED\b)": "undecided",
    r"\bsettle(s|d|_\w+)?\b": "decide, tier 3",
    r"\blattice\b|\bOnLattice\b": "fixed point",
    r"\b(held|holds?|holding) (against|to the)\b": "compare with",
    r"\bwhat became of\b": "row status",
    r"\bwhat (is|was) kept\b|\bkept answers\b": "saved statistics, cached answers",
    r"\bwhat came back\b": "results",
    r"\b(put|puts|putting) (a |the |each |every |)cases? to\b": "run",
    r"\bkernels[./]ground\b": "tuning",
    r"\bby luck\b": "by chance",
}
"""Patterns, and what to write instead."""


def files() -> Iterator[Path]:
    for folder in EVERYWHERE:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and "_build" not in path.parts and path != Path(__file__):
                yield path
    yield from (path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md")


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files()
    }


def uses(pattern: str, text: str) -> list[str]:
    return [match[0] for match in re.finditer(pattern, text, re.IGNORECASE)]


@pytest.mark.parametrize("pattern", REPLACED, ids=range(len(REPLACED)))
def test_the_term_is_gone(texts: dict[str, str], pattern: str) -> None:
    found = {name: some for name, text in texts.items() if (some := uses(pattern, text))}
    assert found == {}, REPLACED[pattern]
