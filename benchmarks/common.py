"""Shared by the benchmarks: paths, the machine, command-line options, results and pages.

It imports no NumPy, so that a command can set thread variables first.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from truenorm.tools import strict_json
from truenorm.tools.machine import describe
from truenorm.tools.progress import Progress, status_line

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
FIGURES = DOCS / "figures"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TRUENORM_THREADS")


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment variables that limit truenorm and NumPy's libraries to `threads`.

    The libraries read them once: set them before NumPy is imported.
    """
    return dict.fromkeys(THREADS, str(threads))


def machine(threads: int = 1, packages: Sequence[str] = ("numpy", "truenorm")) -> dict[str, str]:
    """Return processor, versions, threads and date, which every published figure needs."""
    facts = describe("cpu", "cores", "platform", "python", *packages)
    return facts | {"threads": str(threads)} | describe("date")


def heading(facts: Mapping[str, str]) -> str:
    """Return the machine's facts as the lines printed above a table."""
    return "\n".join(f"{name:9s}{value}" for name, value in facts.items())


def progress(name: str) -> Progress:
    """Return a callback that shows the progress of one subject."""
    return lambda done, total, what: status_line(f"{name}: {done} of {total}, {what}")


def options(
    name: str, description: str, *, output: Path | None = None, page: str = ""
) -> argparse.ArgumentParser:
    """Return a parser, with ``--output`` and ``--page`` where they apply."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    if output is not None:
        parser.add_argument("--output", type=Path, default=output, help="the JSON file to write")
    if page:
        parser.add_argument("--page", action="store_true", help=f"measure nothing: {page}")
    return parser


def read_results(path: Path) -> dict[str, Any]:
    """Read a file of results."""
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


def publish(report: Mapping[str, Any], output: Path, page: Callable[[Any], str]) -> None:
    """Write a report, and print what its page shows."""
    strict_json.write(report, output)
    print(page(read_results(output)))


def coloured(words: str, grade: str = "") -> str:
    """Return words with the colour of a grade, which may be pass or fail; by default their own."""
    return f"[{words}]{{.grade-{grade or words}}}"


def markdown_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True
) -> str:
    """Return a Markdown table; with `numbers`, columns after the first are right-aligned."""
    rule = ["---", *["---:" if numbers else "---"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with each block between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""
    for name, block in blocks.items():
        start, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        if text.count(start) != 1 or text.count(end) != 1:
            raise ValueError(f"the page has no place for {name!r}: expected {start}, then {end}")
        before, _, rest = text.partition(start)
        text = f"{before}{start}\n\n{block}\n\n{end}{rest.partition(end)[2]}"
    return text


def fill_page(page: Path, blocks: Mapping[str, str]) -> None:
    """Replace blocks of a page on disk."""
    page.write_text(fill(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
