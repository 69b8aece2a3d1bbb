"""Every equation that code or a page cites exists, and every one has its own number."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = {
    "D": "learn/derivation.md",
    **dict.fromkeys("CEFPRT", "inside/error-analysis.md"),
    "L": "inside/partials.md",
}
"""Where the equations of each letter are."""
SUFFIXES = (".py", ".c", ".h")


def numbered_equations(letter: str) -> list[str]:
    text = (ROOT / "docs" / PAGES[letter]).read_text(encoding="utf-8")
    return re.findall(rf"\\tag\{{({letter}\d+)\}}", text)


def citations(text: str) -> set[str]:
    return set(re.findall(r"\(([CDEFLPRT]\d+)\)", text))


def citing_files() -> Iterator[Path]:
    yield from (path for path in (ROOT / "src").rglob("*") if path.suffix in SUFFIXES)
    yield from (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    yield from (path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
    yield from ROOT.glob("*.md")


@pytest.mark.parametrize("letter", PAGES)
def test_equations_are_numbered_in_order(letter: str) -> None:
    equations = numbered_equations(letter)
    assert equations
    assert equations == [f"{letter}{number}" for number in range(1, len(equations) + 1)]


def test_cited_equations_exist() -> None:
    known = {equation for letter in PAGES for equation in numbered_equations(letter)}
    unknown = {
        f"{path.relative_to(ROOT)}: ({cited})"
        for path in citing_files()
        for cited in citations(path.read_text(encoding="utf-8")) - known
    }
    assert not unknown


def test_every_bound_is_cited_where_it_is_computed() -> None:
    source = ROOT / "src" / "truenorm" / "kernels"
    files = (path for path in source.rglob("*") if path.suffix in SUFFIXES)
    cited = {each for path in files for each in citations(path.read_text(encoding="utf-8"))}
    bounds = {equation for letter in "EPFRT" for equation in numbered_equations(letter)}
    assert bounds <= cited
