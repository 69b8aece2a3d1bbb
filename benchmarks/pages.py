"""Tables in pages: what stands between two comments with a name is what a command made."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.timing import heading

__all__ = ["filled", "markdown_table", "published"]


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True
) -> str:
    """Return a table in Markdown; columns after the first are to the right if they are numbers."""
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def filled(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with each block between its comments, ``<!-- begin NAME -->`` and end."""
    for name, made in blocks.items():
        start, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if page.count(start) != 1 or page.count(end) != 1:
            raise ValueError(f"the page has no place for {name!r}, between {start} and {end}")
        before, _, rest = page.partition(start)
        after = rest.partition(end)[2]
        page = f"{before}{start}\n\n{made}\n\n{end}{after}"
    return page


def published(results: Path, page: Callable[[Any], str], to: Path | None) -> str:
    """Write the page of a file of results, if there is a place for it; return what is printed."""
    report = json.loads(results.read_text(encoding="utf-8"))
    if to is not None:
        to.write_text(page(report), encoding="utf-8")
    return heading(report["machine"]) + "\n\n" + page(report)
