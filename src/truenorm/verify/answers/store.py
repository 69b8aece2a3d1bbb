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
from truenorm.verify.operation import Case

__all__ = ["QUICK", "QUICK_SOURCES", "kept", "sources"]

QUICK, QUICK_SOURCES = "quick.zip", "quick.sources"
"""In the folder of an operation: answers, and the `sources` that they were computed with.

They are made by ``python -m benchmarks.answers``.
"""
WORTH_KEEPING = 256
"""Elements of a case: with fewer, it is computed in the time that it takes to find a file."""


def kept(case: Case, compute: Callable[[Case], Arrays]) -> Arrays:
    """Return the exact numbers of a case; they are computed if nobody kept them."""
    operation = case.operation
    if operation.folder is None or not sources(operation.folder):
        return compute(case)
    question = Question.of(case)
    place = f"answers-{sources(operation.folder)}", question.name
    for content in _found(operation.folder, *place):
        exact = unpack(question, operation.guesses, content)
        if exact is not None:
            return exact
    exact = compute(case)
    if question.given[operation.inputs[0].name].size >= WORTH_KEEPING:
        with suppress(OSError, RuntimeError):  # there is no place, or no home
            user_cache.write(*place, pack(question, operation.guesses, exact))
    return exact


def _found(operation: Path, folder: str, name: str) -> Iterator[bytes]:
    """Yield what was kept: beside the operation, and by the user if that will not do."""
    if content := _quick(operation).get(name):
        yield content
    with suppress(OSError, RuntimeError):
        yield user_cache.read(folder, name)


@cache
def sources(folder: Path) -> str:
    """Return a name for everything that decides what the answers of an operation are.

    There is none where sources cannot be read, as in an archive.
    """
    paths = [Path(types.__file__)]
    for part in (Path(truenorm.exact.__file__).parent, Path(__file__).parent, folder):
        paths += sorted(part.glob("*.py"))
    with suppress(OSError):
        # As text: ends of lines depend on the system.
        content = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        return sha256(repr(content).encode()).hexdigest()[:16]
    return ""


@cache
def _quick(folder: Path) -> dict[str, bytes]:
    """Return the answers that come with the package, if they belong to these sources."""
    with suppress(OSError, zipfile.BadZipFile):
        made_with = (folder / QUICK_SOURCES).read_text(encoding="utf-8").strip()
        if made_with == sources(folder):
            with zipfile.ZipFile(folder / QUICK) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}
