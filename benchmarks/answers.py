"""``python -m benchmarks.answers``: compute the exact answers that come with the package.

Those to the cases of the judge's quick level, first those that take the least room for a number,
up to `ROOM`. A change of the sources that compute them makes them stale: then run this again. The
archive stays the same to the byte unless an answer does not.
"""
# ruff: noqa: T201
# A command prints its result.

import sys
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.timing import progress
from truenorm.verify.answers.packing import pack
from truenorm.verify.answers.store import IN_THE_PACKAGE, OF_THESE_SOURCES, SOURCES
from truenorm.verify.inputs import EXTENSIONS, Case
from truenorm.verify.oracle import computed, question
from truenorm.verify.suite import cases
from truenorm.verify.types import FORMATS

__all__ = ["Packed", "packed", "quick_cases"]

ROOM = 2_000_000
ENTRY = 150
"""Bytes that an archive needs for an entry beside its content."""
MIDNIGHT = (1980, 1, 1, 0, 0, 0)


class Packed(NamedTuple):
    """An answer as it is kept."""

    name: str
    content: bytes
    room: float  # for a number


def quick_cases() -> list[Case]:
    """Return all cases of the quick level, also those that are judged only if asked for."""
    return [case for dtype in FORMATS for case in cases(dtype, "quick", EXTENSIONS)]


def packed(case: Case) -> Packed:
    """Compute an answer anew."""
    asked = question(case)
    content = pack(asked, computed(asked))
    return Packed(asked.name, content, len(content) / max(1, case.x.size))


def _chosen(answers: list[Packed]) -> Iterator[Packed]:
    left = ROOM
    for each in sorted(answers, key=lambda each: (each.room, each.name)):
        left -= len(each.content) + ENTRY
        if left >= 0:
            yield each


def main() -> int:
    """Write the archive, and what it was made from."""
    answers = []
    for case in quick_cases():
        progress(case.name)
        answers.append(packed(case))
    progress()
    chosen = list(_chosen(answers))
    with zipfile.ZipFile(IN_THE_PACKAGE, "w") as archive:
        for each in sorted(chosen):
            # Not compressed again, and with no date of today.
            archive.writestr(zipfile.ZipInfo(each.name, MIDNIGHT), each.content)
    OF_THESE_SOURCES.write_text(SOURCES + "\n", encoding="utf-8")
    size = IN_THE_PACKAGE.stat().st_size
    print(f"{len(chosen)} of {len(answers)} answers, {size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
