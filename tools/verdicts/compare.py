"""What changed between two fingerprints, kernel by kernel."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tools.verdicts.projection import DIGITS, Fingerprint

SHOWN = 5
"""Names of cases in one line."""


class Changes(NamedTuple):
    """The lines about one kernel: verdicts and records, cases that only one run has, words."""

    verdicts: list[str]
    cases: list[str]
    words: list[str]


def changes(old: Fingerprint, new: Fingerprint) -> Changes:
    """Return the changes of one kernel."""
    verdicts = []
    if old.verdict != new.verdict:
        verdicts.append(f"verdict: {old.verdict} -> {new.verdict}")
    for name, before, after in (
        ("grade", old.grades, new.grades),
        ("finding", old.findings, new.findings),
        ("fact", old.facts, new.facts),
    ):
        verdicts += _lost_and_found(name, before, after)
    common = [name for name in old.cases if name in new.cases]
    for what, part in (("records", slice(DIGITS)), ("errors", slice(DIGITS, None))):
        verdicts += _named(
            f"{what} of a case",
            [name for name in common if old.cases[name][part] != new.cases[name][part]],
        )
    cases = [
        *_named("new case", [name for name in new.cases if name not in old.cases]),
        *_named("case is gone", [name for name in old.cases if name not in new.cases]),
    ]
    return Changes(verdicts, cases, list(_lost_and_found("words", old.words, new.words)))


def _lost_and_found(what: str, old: Iterable[str], new: Iterable[str]) -> Iterator[str]:
    before, after = Counter(old), Counter(new)
    yield from (f"{what} lost:  {each}" for each in (before - after).elements())
    yield from (f"{what} found: {each}" for each in (after - before).elements())


def _named(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{what}: {', '.join(names[:SHOWN])}{more}"]


def compare(old: Mapping[str, Fingerprint], new: Mapping[str, Fingerprint]) -> tuple[str, int]:
    """Return a text about all kernels, and the number of kernels whose verdicts changed.

    Kernels of one run alone count; cases of one run alone and words do not.
    """
    lines = [f"{name}: only in the old run" for name in old if name not in new]
    lines += [f"{name}: only in the new run" for name in new if name not in old]
    changed = len(lines)
    apart: dict[str, list[str]] = {"Cases of one run alone": [], "Words that changed": []}
    for name in sorted(old.keys() & new.keys()):
        verdicts, cases, words = changes(old[name], new[name])
        changed += bool(verdicts)
        for part, of_part in zip((lines, *apart.values()), (verdicts, cases, words), strict=True):
            if of_part:
                part += [name, *(f"  {each}" for each in of_part)]
    for title, part in apart.items():
        if part:
            lines += ["", f"{title}:", *part]
    common = len(old.keys() & new.keys())
    lines.append(f"{common} kernels compared, {changed} changed")
    return "\n".join(lines), changed
