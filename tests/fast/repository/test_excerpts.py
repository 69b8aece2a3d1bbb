"""Code that a page takes from a file, ``<!-- from FILE -->`` before the fence, is in that file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXCERPT = re.compile(r"<!-- from (\S+) -->\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def excerpts() -> Iterator[tuple[str, str, str]]:
    """Yield the page, the file and the code of each excerpt."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for file, code in EXCERPT.findall(page.read_text(encoding="utf-8")):
            yield page.name, file, code


def parts(file: str, code: str) -> list[str]:
    """Return what has to be in a file, without the layout of lines and, in Python, comments."""
    if file.endswith(".py"):
        return [ast.unparse(statement) for statement in ast.parse(code).body]
    return [" ".join(code.split())]


def whole(file: str, text: str) -> str:
    """Return a file in the form of `parts`."""
    return ast.unparse(ast.parse(text)) if file.endswith(".py") else " ".join(text.split())


EXCERPTS = list(excerpts())


@pytest.mark.parametrize(("page", "file", "code"), EXCERPTS, ids=lambda text: text[:24])
def test_the_file_has_the_excerpt(page: str, file: str, code: str) -> None:
    text = whole(file, (ROOT / file).read_text(encoding="utf-8"))
    for part in parts(file, code):
        assert part in text, f"{page}: {file} has another version of {part[:60]}"
