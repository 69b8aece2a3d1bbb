"""Fingerprints in text files: a line for each kernel, and one for each list of cases."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from tools.verdicts.projection import DIGITS, Fingerprint

RECORD = Path(__file__).with_name("record")
"""The record of the judge before it is rebuilt."""
BETWEEN = " ;; "
COLUMNS = (
    "# kernel, verdict, grades, findings (output | check | cause | case), facts, cases, words"
)
WIDTH = 2 * DIGITS
"""Characters of a case: the hash of its records, and that of its errors."""


def write(path: Path, fingerprints: Iterable[Fingerprint]) -> None:
    """Write a file, sorted by kernel."""
    suites: dict[str, str] = {}
    lines = []
    for each in sorted(fingerprints, key=lambda one: one.kernel):
        names = " ".join(each.cases)
        suite = suites.setdefault(names, hashlib.sha256(names.encode()).hexdigest()[:8])
        hashes = "".join(each.cases.values())
        columns = [BETWEEN.join(column) for column in (each.grades, each.findings, each.facts)]
        words = BETWEEN.join(each.words)
        row = [each.kernel, each.verdict, *columns, f"{suite}:{hashes}", words]
        lines.append("\t".join(map(_on_one_line, row)))
    named = [f"cases\t{suite}\t{names}" for names, suite in suites.items()]
    path.write_text("\n".join([COLUMNS, *named, *lines]) + "\n", encoding="utf-8")


def _on_one_line(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")


def read(path: Path) -> dict[str, Fingerprint]:
    """Read a file: the fingerprints by kernel."""
    suites: dict[str, list[str]] = {}
    fingerprints: dict[str, Fingerprint] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        if line.startswith("cases\t"):
            _, suite, names = line.split("\t")
            suites[suite] = names.split()
            continue
        kernel, verdict, *columns, cases, words = line.split("\t")
        grades, findings, facts = map(_items, columns)
        suite, _, hashes = cases.partition(":")
        places = range(0, WIDTH * len(suites[suite]), WIDTH)
        each = [hashes[place : place + WIDTH] for place in places]
        by_case = dict(zip(suites[suite], each, strict=True))
        fingerprints[kernel] = Fingerprint(
            kernel, verdict, grades, findings, facts, by_case, _items(words)
        )
    return fingerprints


def _items(column: str) -> tuple[str, ...]:
    return tuple(column.split(BETWEEN)) if column else ()
