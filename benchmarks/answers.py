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

from truenorm.tools.progress import status_line
from truenorm.verify.answers.expected import computed
from truenorm.verify.answers.packing import pack
from truenorm.verify.answers.question import Question
from truenorm.verify.answers.store import QUICK, QUICK_SOURCES, sources
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import LAYER_NORM
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
    return [case for dtype in FORMATS for case in LAYER_NORM.cases(dtype, "quick")]


def packed(case: Case) -> Packed:
    """Compute an answer anew."""
    question = Question.of(case)
    content = pack(question, case.operation.guesses, computed(case))
    return Packed(question.name, content, len(content) / max(1, case.x.size))


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
        status_line(case.name)
        answers.append(packed(case))
    status_line()
    chosen = list(_chosen(answers))
    folder = LAYER_NORM.folder
    with zipfile.ZipFile(folder / QUICK, "w") as archive:
        for each in sorted(chosen):
            # Not compressed again, and with no date of today.
            archive.writestr(zipfile.ZipInfo(each.name, MIDNIGHT), each.content)
    (folder / QUICK_SOURCES).write_text(sources(folder) + "\n", encoding="utf-8")
    print(f"{len(chosen)} of {len(answers)} answers, {(folder / QUICK).stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
