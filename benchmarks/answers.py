"""``python -m benchmarks.answers``: compute the cached answers that the package ships.

They are those of the judge's quick level, up to `ROOM` bytes, the smallest per number first. They
are stale after a change of the sources that compute them: run this again. The archive changes only
if an answer does.
"""
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

ROOM = 1_100_000
ENTRY = 150
"""Bytes of an archive for an entry, without its content."""
MIDNIGHT = (1980, 1, 1, 0, 0, 0)


class Packed(NamedTuple):
    """An answer in the archive."""

    name: str
    content: bytes
    room: float  # bytes per number


def quick_cases(operation: Operation) -> list[Case]:
    """Return all cases of the quick level whose answers are cached, extensions included."""
    suite = [case for dtype in FORMATS for case in operation.cases(dtype, "quick")]
    return [case for case in suite if not case.enclosed]


def packed(case: Case) -> Packed:
    """Compute and pack an answer."""
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
    """Write the archive of an operation and the digest of its sources; return a summary."""
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
            # Already compressed; a fixed date keeps the bytes equal.
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
