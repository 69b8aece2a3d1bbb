"""``python -m benchmarks.museum``: write docs/museum.md from the judge's named cases.

What fails them comes from what ``python -m benchmarks.scoreboard`` wrote, if that is there.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.scoreboard_subjects import BOARDS
from truenorm.tools.text import number
from truenorm.verify import Case, case
from truenorm.verify.cases.named import Entry, entries, not_cases
from truenorm.verify.operation import Operation
from truenorm.verify.operations import LAYER_NORM, OPERATIONS, RMS_NORM
from truenorm.verify.oracle import expected
from truenorm.verify.report.wording import link

__all__ = ["main", "page", "scoreboard", "scoreboards"]

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "museum.md"
SHOWN = "float32"  # the type of an exhibit, if it has it

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
[Read the grades](judging.md#read-the-grades). An exhibit that needs an extension is judged only if
the subject asks for it."""

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


def scoreboard(file: Path) -> Board | None:
    """Return what a scoreboard found, or None if there is no such file."""
    if not file.exists():
        return None
    found: Board = json.loads(file.read_text(encoding="utf-8"))
    return found


def scoreboards() -> Boards:
    """Return what the scoreboards found, of those that are there."""
    found = {name: scoreboard(each.results) for name, each in BOARDS.items()}
    return {name: board for name, board in found.items() if board is not None}


def page(boards: Boards) -> str:
    """Return the page as Markdown."""
    reported, quiet = _of_its_own(LAYER_NORM)
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


def _of_its_own(operation: Operation) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that no other operation has: those that were reported, and others."""
    own = [entry for entry in entries(operation) if entry["name"] not in _taken(operation)]
    return [entry for entry in own if entry["sources"]], [
        entry for entry in own if not entry["sources"]
    ]


def _taken(operation: Operation) -> list[str]:
    """Return the names of the entries that are another operation's."""
    return [entry["name"] for entry in entries(operation) if "as_in" in entry]


def _of_rms_norm(board: Board | None) -> Iterator[str]:
    reported, quiet = _of_its_own(RMS_NORM)
    taken = ", ".join(f"`{name}`" for name in _taken(RMS_NORM))
    yield RMSNORM.format(example=_shown(reported[0]), taken=taken)
    for entry in (*reported, *quiet):
        yield _exhibit(RMS_NORM, entry, board)


def _plain(text: str) -> str:
    """Return a text of which Markdown takes no character for its own."""
    return re.sub(r"([\\`*_\[\]<>$|])", r"\\\1", text)


def _sentence(text: str) -> str:
    """Return a text with a capital at its beginning and a full stop at its end."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _links(sources: Iterable[str]) -> str:
    """Return the sources, each as a link if its address is known."""
    pairs = ((_plain(source), link(source)) for source in sources)
    return ", ".join(f"[{name}]({address})" if address else name for name, address in pairs)


def _shown(entry: Entry) -> str:
    """Return the name of the case that stands for an entry."""
    kind = SHOWN if SHOWN in entry["dtypes"] else entry["dtypes"][0]
    return f"{kind}-{entry['name']}"


def _exhibit(operation: Operation, entry: Entry, board: Board | None) -> str:
    shown = case(_shown(entry), operation=operation)
    lines = [f"### {_plain(entry['title'])}", ""]
    if entry["failed"]:
        lines += [_plain(entry["failed"]), ""]
    if entry["sources"]:
        lines.append(f"- **Reported:** {_links(entry['sources'])}")
    lines += [
        f"- **Tests:** {_plain(_sentence(entry['shows']))}",
        f"- **Case:** {_described(shown, entry)}",
    ]
    if board is not None and not entry["also"]:
        # Cases that were added since; the next run of the scoreboard has none.
        newer = entry["name"] in board.get("newer", [])
        lines.append(NOT_MEASURED if newer else _who_fails(shown, board["subjects"]))
    return "\n".join(lines)


def _described(shown: Case, entry: Entry) -> str:
    """Return the name of a case, its size and condition, and what else there is of it."""
    rows, size = shown.x.shape
    eps = re.sub(r"e-0*", "e-", f"{shown.eps:.2g}")
    kappa = number(float(expected(shown).scales.kappa.max(initial=0.0)))
    count = {0: "no rows", 1: "1 row"}.get(rows, f"{rows:,} rows")
    condition = f", κ up to {kappa}" if rows and shown.operation is LAYER_NORM else ""
    said = f"`{shown}`: {count} of {size}, eps = {eps}{condition}"
    others = [kind for kind in entry["dtypes"] if kind != shown.dtype]
    said += f"; also in {', '.join(others)}" if others else ""
    needs = ", ".join(f"`{name}`" for name in entry["also"])
    return said + (f"; needs {needs}" if needs else "")


def _today(board: Board) -> str:
    """Return where the lines about failing come from; what all have in common is said once."""
    subjects = board["subjects"].values()
    common = dict(set.intersection(*(set(each["versions"].items()) for each in subjects)))
    rows = [
        f"| {_plain(each['name'])} | {_versions(each['versions'], common)} |" for each in subjects
    ]
    return TODAY.format(
        date=board["machine"]["date"],
        level=board["level"],
        cpu=board["machine"]["cpu"],
        common=", ".join(f"{name} {common[name]}" for name in sorted(common, reverse=True)),
        versions="\n".join(rows),
    )


def _versions(of: Mapping[str, str], common: Mapping[str, str]) -> str:
    return _plain(", ".join(f"{name} {of[name]}" for name in of if name not in common))


def _who_fails(shown: Case, subjects: Mapping[str, Any]) -> str:
    """Return who fails a case; where it is no matter of accuracy, who fails that verdict."""
    if shown.kind == "special":
        return _verdict("special values", subjects)
    if shown.family == "batch":
        return _verdict("batch-invariant", subjects)
    told = "; ".join(_outputs_that_fail(shown, subjects))
    return f"- **Fail in {shown.dtype} today:** {told or 'none'}"


def _outputs_that_fail(shown: Case, subjects: Mapping[str, Any]) -> Iterator[str]:
    for subject in subjects.values():
        failing = subject["failing"].items()
        outputs = [output for output, names in failing if shown.name in names]
        if outputs:
            yield f"{_plain(subject['name'])} ({', '.join(outputs)})"


def _verdict(verdict: str, subjects: Mapping[str, Any]) -> str:
    failed = [each["name"] for each in subjects.values() if each["verdicts"][verdict] == "fail"]
    told = "; ".join(map(_plain, failed)) or "none"
    return f"- **Fail “{verdict}” today, in at least one type:** {told}"


def _missing(failure: Entry) -> str:
    title, reason = _plain(failure["title"]), _plain(failure["reason"])
    return f"### {title}\n\n{reason}\n\n- **Reported:** {_links(failure['sources'])}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(scoreboards()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
