"""Where exact answers are kept: those of the quick level beside the operation, others by the user.

Each is kept under a hash of its question, and only as long as the sources that compute it are the
same. Nothing that is read is run. Where nothing can be kept, answers are computed.
"""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import truenorm.exact
from truenorm import user_cache
from truenorm.verify import types
from truenorm.verify.answers.packing import pack, unpack
from truenorm.verify.answers.question import Arrays, Question
from truenorm.verify.operation import Case, Operation

__all__ = ["QUICK", "QUICK_SOURCES", "kept", "sources_of"]

QUICK, QUICK_SOURCES = "quick.zip", "quick.sources"
"""In the folder of an operation: answers, and the `sources` that they were computed with.

They are made by ``python -m benchmarks.answers``.
"""
WORTH_KEEPING = 256
"""Elements of a case: with fewer, it is computed in the time that it takes to find a file."""


def kept(case: Case, compute: Callable[[Case], Arrays]) -> Arrays:
    """Return the exact numbers of a case; they are computed if nobody kept them."""
    operation = case.operation
    made_with = sources_of(operation)
    if operation.folder is None or not made_with:
        return compute(case)
    question = Question.of(case)
    place = f"answers-{made_with}", question.name
    for content in _found(operation.folder, made_with, *place):
        exact = unpack(question, operation.guesses, content)
        if exact is not None:
            return exact
    exact = compute(case)
    if not case.drawn and question.given[operation.inputs[0].name].size >= WORTH_KEEPING:
        with suppress(OSError, RuntimeError):  # there is no place, or no home
            user_cache.write(*place, pack(question, operation.guesses, exact))
    return exact


def _found(operation: Path, made_with: str, folder: str, name: str) -> Iterator[bytes]:
    """Yield what was kept: beside the operation, and by the user if that will not do."""
    if content := _quick(operation, made_with).get(name):
        yield content
    with suppress(OSError, RuntimeError):
        yield user_cache.read(folder, name)


def sources_of(operation: Operation) -> str:
    """Return a name for everything that decides what the answers of an operation are.

    There is none where sources cannot be read, as in an archive, or are nowhere.
    """
    if operation.folder is None:
        return ""
    return sources(*operation.also_computed_in, operation.folder)


@cache
def sources(*folders: Path) -> str:
    """Return a name for what is in these folders, and for what all operations have in common."""
    paths = [Path(types.__file__)]
    for part in (Path(truenorm.exact.__file__).parent, Path(__file__).parent, *folders):
        paths += sorted(part.glob("*.py"))
    with suppress(OSError):
        # As text: ends of lines depend on the system.
        content = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        return sha256(repr(content).encode()).hexdigest()[:16]
    return ""


@cache
def _quick(folder: Path, made_with: str) -> dict[str, bytes]:
    """Return the answers that come with the package, if they belong to these sources."""
    with suppress(OSError, zipfile.BadZipFile):
        if (folder / QUICK_SOURCES).read_text(encoding="utf-8").strip() == made_with:
            with zipfile.ZipFile(folder / QUICK) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}
