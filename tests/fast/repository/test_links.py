"""Links lead somewhere, named files exist, and the README has at most 600 words."""

import re
from pathlib import Path

import pytest

from benchmarks.pages import expand
from benchmarks.size import words_by_page

ROOT = Path(__file__).parents[3]
PAGES = [
    path
    for path in [
        *ROOT.glob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        *(ROOT / "tests").rglob("*.md"),
    ]
    if "_build" not in path.parts
]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def local_links(page: Path) -> list[str]:
    targets = re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8")))
    return [target for target in targets if not re.match(r"https?://", target)]


def anchors(page: Path) -> set[str]:
    """Return the anchors that code hosts and MyST give to headings, those of results included."""
    text = without_code(expand(page.read_text(encoding="utf-8")))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in local_links(page):
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    """Code spans that begin with a folder of the repository; NAME stands for any name."""
    text = without_code(page.read_text(encoding="utf-8"))
    for name in re.findall(r"`((?:benchmarks|docs|examples|src|tests)/[\w./-]+)`", text):
        if "NAME" not in name and "_build" not in name:
            assert any((folder / name).exists() for folder in (ROOT, page.parent)), name


@pytest.mark.parametrize(
    ("words", "link"),
    [
        ("gradients by hand", "derivation.md"),
        ("reused intermediates", "derivation.md#the-compact-form"),
        ("numerical stability", "stability.md"),
        ("numerical gradient check", "gradient-check.md"),
        ("time and memory complexity", "time-and-memory.md"),
        ("fused GPU kernel", "fuse.md"),
    ],
)
def test_each_part_of_the_task_is_one_click_from_the_readme(words: str, link: str) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"[{words}](docs/learn/{link})" in readme


def test_words_of_the_readme() -> None:
    """If this fails: `python -m benchmarks.size --words`."""
    assert words_by_page(ROOT)["README.md"][1] <= 600
