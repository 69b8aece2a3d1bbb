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
from truenorm.verify.operation import Case, Operation
from truenorm.verify.operations import OPERATIONS
from truenorm.verify.oracle import (
    QUICK_ARCHIVE,
    QUICK_SOURCES,
    AnswerKey,
    compute_exact,
    pack,
    sources_of,
)
from truenorm.verify.types import FORMATS

__all__ = ["Packed", "packed", "quick_cases"]

ROOM = 2_200_000
ENTRY = 150
"""Bytes that an archive needs for an entry beside its content."""
MIDNIGHT = (1980, 1, 1, 0, 0, 0)


class Packed(NamedTuple):
    """An answer as it is kept."""

    name: str
    content: bytes
    room: float  # for a number


def quick_cases(operation: Operation) -> list[Case]:
    """Return all cases of the quick level, also those that are judged only if asked for."""
    return [case for dtype in FORMATS for case in operation.cases(dtype, "quick")]


def packed(case: Case) -> Packed:
    """Compute an answer anew."""
    question = AnswerKey.of(case)
    content = pack(question, case.operation.predictors, compute_exact(case))
    return Packed(question.name, content, len(content) / max(1, case.x.size))


def _chosen(answers: list[Packed]) -> Iterator[Packed]:
    left = ROOM
    for each in sorted(answers, key=lambda each: (each.room, each.name)):
        left -= len(each.content) + ENTRY
        if left >= 0:
            yield each


def write(operation: Operation) -> str:
    """Write the archive of an operation, and what it was made from; return how large it is."""
    assert operation.folder is not None
    answers = []
    for case in quick_cases(operation):
        status_line(f"{operation.name}: {case.name}")
        answers.append(packed(case))
    status_line()
    chosen = list(_chosen(answers))
    file = operation.folder / QUICK_ARCHIVE
    with zipfile.ZipFile(file, "w") as archive:
        for each in sorted(chosen):
            # Not compressed again, and with no date of today.
            archive.writestr(zipfile.ZipInfo(each.name, MIDNIGHT), each.content)
    made_with = sources_of(operation) + "\n"
    (operation.folder / QUICK_SOURCES).write_text(made_with, encoding="utf-8")
    return f"{len(chosen)} of {len(answers)} answers, {file.stat().st_size:,} bytes"


def main() -> int:
    """Write the archives of all operations."""
    for name, operation in OPERATIONS.items():
        print(f"{name}: {write(operation)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
