"""``python -m benchmarks.museum``: write docs/judge/museum.md from the judge's named cases.

What fails them comes from what ``python -m benchmarks.scoreboard`` wrote, if that is there.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchmarks.common import DOCS, read_results
from benchmarks.scoreboard import BOARDS
from truenorm.tools.text import number
from truenorm.verify import Case, case
from truenorm.verify.cases.named import Entry, entries, not_cases
from truenorm.verify.operation import Operation
from truenorm.verify.operations import LAYER_NORM, OPERATIONS, RMS_NORM
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import link

PAGE = DOCS / "judge" / "museum.md"
SHOWN = "float32"  # the type of an exhibit, if the entry has it

Board = Mapping[str, Any]
Boards = Mapping[str, Board]
"""By operation."""

HEAD = """\
<!-- Written by python -m benchmarks.museum from each operation's cases.toml: change that. -->
# Museum of failures

Rows that broke somebody's layer norm, and [RMSNorm](#rmsnorm). Each exhibit is a case of the
judge: of those of layer norm {reported} were reported, {quiet} were not but break many.
[`truenorm verify`](verify.md) puts all of them to your kernel, and one alone is

    tv.check(subject, tv.case("{example}"))

κ is the condition number of a row, rms(x)/√(var + eps), see
[Read the grades](../reference/grades.md#read-the-grades). An exhibit that needs an
extension is judged only if the subject asks for it."""

TODAY = """\
**Fails today** is what `python -m benchmarks.scoreboard` found on {date}, see
[the scoreboard](scoreboard.md): {level} level, {cpu}, {common}. An output fails if its error is
larger than that of a stable algorithm, or if it was not returned. What needs an extension was not
put to them. thinc computes with eps = 1e-8 whatever it is asked for, and fails wherever that
matters.

| | |
|---|---|
{versions}"""


NOT_MEASURED = "- **Fail today:** not measured: the case is newer than the scoreboard"

RMSNORM = """\
No mean is subtracted: κ is 1 for every row, and what is hard is the range of the squares, sums in
few bits, and dx where x is in proportion to gamma·dy. One case alone is

    tv.check(subject, tv.case("{example}", operation=tv.RMS_NORM))

These rows of layer norm, without beta, are put to an RMSNorm as well: {taken}."""


def scoreboards() -> Boards:
    """Return the scoreboards that exist, and say how to make the others."""
    boards = {}
    for name, board in BOARDS.items():
        if board.results.exists():
            boards[name] = read_results(board.results)
        else:
            command = f"python -m benchmarks.scoreboard --operation {name}"
            print(f"no failures of {name}: run {command} first", file=sys.stderr)
    return boards


def page(boards: Boards) -> str:
    """Return the page as Markdown."""
    reported, quiet = _own_entries(LAYER_NORM)
    example = _shown(reported[0])
    head = HEAD.format(reported=len(reported), quiet=len(quiet), example=example)
    board = boards.get("layer_norm")
    parts = [head, *([] if board is None else [_today(board)])]
    parts += ["## Reported", *(_exhibit(LAYER_NORM, entry, board) for entry in reported)]
    parts += ["## Not reported", *(_exhibit(LAYER_NORM, entry, board) for entry in quiet)]
    parts += ["## RMSNorm", *_of_rms_norm(boards.get("rms_norm"))]
    missing = [each for operation in OPERATIONS.values() for each in not_cases(operation)]
    parts += ["## What no case can show", *map(_missing, missing)]
    return "\n\n".join(parts) + "\n"


def _own_entries(operation: Operation) -> tuple[list[Entry], list[Entry]]:
    """Return the operation's own entries: reported ones, and others."""
    own = [entry for entry in entries(operation) if "as_in" not in entry]
    with_sources = [entry for entry in own if entry["sources"]]
    return with_sources, [entry for entry in own if not entry["sources"]]


def _of_rms_norm(board: Board | None) -> Iterator[str]:
    reported, quiet = _own_entries(RMS_NORM)
    taken = ", ".join(f"`{each['name']}`" for each in entries(RMS_NORM) if "as_in" in each)
    yield RMSNORM.format(example=_shown(reported[0]), taken=taken)
    for entry in (*reported, *quiet):
        yield _exhibit(RMS_NORM, entry, board)


def _escape(text: str) -> str:
    """Escape the special characters of Markdown."""
    return re.sub(r"([\\`*_\[\]<>$|])", r"\\\1", text)


def _links(sources: Iterable[str]) -> str:
    """Return the sources, each as a link if its address is known."""
    pairs = ((_escape(source), link(source)) for source in sources)
    return ", ".join(f"[{name}]({address})" if address else name for name, address in pairs)


def _shown(entry: Entry) -> str:
    """Return the name of the case that stands for an entry."""
    kind = SHOWN if SHOWN in entry["dtypes"] else entry["dtypes"][0]
    return f"{kind}-{entry['name']}"


def _exhibit(operation: Operation, entry: Entry, board: Board | None) -> str:
    shown = case(_shown(entry), operation=operation)
    lines = [f"### {_escape(entry['title'])}", ""]
    if entry["failed"]:
        lines += [_escape(entry["failed"]), ""]
    if entry["sources"]:
        lines.append(f"- **Reported:** {_links(entry['sources'])}")
    shows = entry["shows"]
    lines += [
        f"- **Tests:** {_escape(shows[:1].upper() + shows[1:].rstrip('.'))}.",
        f"- **Case:** {_described(shown, entry)}",
    ]
    if board is not None and not entry["also"]:
        # Cases that were added since; the next run of the scoreboard has none.
        newer = entry["name"] in board.get("newer", [])
        lines.append(NOT_MEASURED if newer else _failing(shown, board["subjects"]))
    return "\n".join(lines)


def _described(shown: Case, entry: Entry) -> str:
    """Return name, size and condition of a case, its other types, and what it needs."""
    rows, size = shown.x.shape
    eps = re.sub(r"e-0*", "e-", f"{shown.eps:.2g}")
    kappa = number(float(expected(shown).scales.kappa.max(initial=0.0)))
    count = {0: "no rows", 1: "1 row"}.get(rows, f"{rows:,} rows")
    condition = f", κ up to {kappa}" if rows and shown.operation is LAYER_NORM else ""
    text = f"`{shown}`: {count} of {size}, eps = {eps}{condition}"
    others = [kind for kind in entry["dtypes"] if kind != shown.dtype]
    text += f"; also in {', '.join(others)}" if others else ""
    needs = ", ".join(f"`{name}`" for name in entry["also"])
    return text + (f"; needs {needs}" if needs else "")


def _today(board: Board) -> str:
    """Return machine and versions of the scoreboard; common versions are listed once."""
    subjects = board["subjects"].values()
    common = dict(set.intersection(*(set(each["versions"].items()) for each in subjects)))
    rows = []
    for each in subjects:
        own = ", ".join(f"{k} {value}" for k, value in each["versions"].items() if k not in common)
        rows.append(f"| {_escape(each['name'])} | {_escape(own)} |")
    return TODAY.format(
        date=board["machine"]["date"],
        level=board["level"],
        cpu=board["machine"]["cpu"],
        common=", ".join(f"{name} {common[name]}" for name in sorted(common, reverse=True)),
        versions="\n".join(rows),
    )


def _failing(shown: Case, subjects: Mapping[str, Any]) -> str:
    """Return the subjects that fail a case, or the verdict that the case is about."""
    if shown.kind == "special":
        return _verdict("special values", subjects)
    if shown.family == "batch":
        return _verdict("batch-invariant", subjects)
    failures = []
    for each in subjects.values():
        outputs = [output for output, names in each["failing"].items() if shown.name in names]
        if outputs:
            failures.append(f"{_escape(each['name'])} ({', '.join(outputs)})")
    return f"- **Fail in {shown.dtype} today:** {'; '.join(failures) or 'none'}"


def _verdict(verdict: str, subjects: Mapping[str, Any]) -> str:
    failed = [each["name"] for each in subjects.values() if each["verdicts"][verdict] == "fail"]
    names = "; ".join(map(_escape, failed)) or "none"
    return f"- **Fail “{verdict}” today, in at least one type:** {names}"


def _missing(failure: Entry) -> str:
    title, reason = _escape(failure["title"]), _escape(failure["reason"])
    return f"### {title}\n\n{reason}\n\n- **Reported:** {_links(failure['sources'])}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(scoreboards()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
