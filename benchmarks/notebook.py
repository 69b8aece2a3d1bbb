"""``python -m benchmarks.notebook``: make a notebook of docs/learn/worked-row.md.

Each fence of the page becomes a cell of code with its output, and the text between two fences a
cell of Markdown. A test runs the cells and compares their outputs.
"""

import json
import re
import sys
from doctest import DocTestParser, Example
from typing import Any

from benchmarks.common import DOCS, options

PAGE = DOCS / "learn" / "worked-row.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
FENCE = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def notebook(page: str) -> dict[str, Any]:
    """Return the notebook of a page."""
    # Split by a pattern with one group: texts and fences take turns.
    parts = FENCE.split(page)
    cells = [_code(part) if position % 2 else _text(part) for position, part in enumerate(parts)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }


def _text(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(text)}


def _code(session: str) -> dict[str, Any]:
    examples = [each for each in DocTestParser().parse(session) if isinstance(each, Example)]
    text = _lines("".join(example.want for example in examples), end="\n")
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [{"name": "stdout", "output_type": "stream", "text": text}] if text else [],
        "source": _lines("".join(example.source for example in examples)),
    }


def _lines(text: str, end: str = "") -> list[str]:
    """Return lines as a notebook stores them: each but the last with its line break."""
    return (text.strip("\n") + end).splitlines(keepends=True) if text else []


def main(argv: list[str] | None = None) -> int:
    """Write the notebook."""
    options("notebook", "Make a notebook of docs/learn/worked-row.md.").parse_args(argv)
    text = json.dumps(notebook(PAGE.read_text(encoding="utf-8")), indent=1, ensure_ascii=False)
    NOTEBOOK.write_text(f"{text}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
