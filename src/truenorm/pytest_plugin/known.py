"""What a baseline says of single tests, and in the end of all of them.

A test tells its part as a property of its report: pytest-xdist brings these together, wherever a
test ran, and a JUnit file has them.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from truenorm.tools.text import counted, one_line
from truenorm.verify.baselines.comparing import entries_of
from truenorm.verify.baselines.file import key
from truenorm.verify.grading.report import Known, Report
from truenorm.verify.pages.wording import entry_in_words

__all__ = ["lines", "told"]

Test = Mapping[str, Any]


def told(report: Report | None, tests: int) -> str:
    """Return what one of so many tests tells; without a report, that it was skipped."""
    said: dict[str, Sequence[Known]] = {"found": (), "known": (), "gone": ()}
    if report is not None and report.baseline is not None:
        entries = report.baseline.entries
        passing = {(each.dtype, each.output, each.check) for each in report.findings if each.known}
        known = [each for each in entries if (each.dtype, each.output, each.check) in passing]
        said = {"found": entries_of(report), "known": known, "gone": report.baseline.vanished}
    return json.dumps(
        {"tests": tests, **{name: [asdict(each) for each in some] for name, some in said.items()}}
    )


def lines(properties: Iterable[tuple[str, str]]) -> list[str]:
    """Return what is known, and what has vanished, by what the tests of each function told.

    Only where all tests of a function ran, something can have vanished.
    """
    functions: dict[str, list[Test]] = defaultdict(list)
    for function, text in properties:
        functions[function].append(json.loads(text))
    every = [test for tests in functions.values() for test in tests]
    whole = [test for tests in functions.values() for test in tests if len(tests) == test["tests"]]
    known = [replace(entry, families=()) for entry in _entries(every, "known")]
    times = Counter(known)
    said = [f"known     {_words(each)}, in {counted(times[each], 'test')}" for each in times]
    return sorted(said) + [f"vanished  {_words(each)}" for each in _vanished(every, whole)]


def _entries(tests: Iterable[Test], name: str) -> Iterator[Known]:
    for test in tests:
        for entry in test[name]:
            yield Known(**{**entry, "families": tuple(entry["families"])})


def _words(entry: Known) -> str:
    return one_line(f"{entry.subject}: {entry_in_words(entry)}")


def _vanished(every: Sequence[Test], whole: Sequence[Test]) -> list[Known]:
    """Return what some tests looked for and none found, in the families in which that is so."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for entry in _entries(every, "found"):
        found[key(entry)].update(entry.families or ("",))
    gone: dict[tuple[str, ...], Known] = {}
    for entry in _entries(whole, "gone"):
        seen = found.get(key(entry), set())
        left = set(entry.families) - seen
        if "" not in seen and (left if entry.families else not seen):
            before = gone[key(entry)].families if key(entry) in gone else ()
            families = tuple(sorted(left.union(before)))
            gone[key(entry)] = replace(entry, families=families)
    return [gone[place] for place in sorted(gone)]
