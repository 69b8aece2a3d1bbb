"""Where exact answers are kept: some in the package, others in a folder of the user's.

Each is kept under a hash of its question, which is the bits, shapes and types of the inputs; and
only as long as the sources that compute it are the same. Nothing that is read is run. Where
nothing can be kept, answers are computed.
"""

import os
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import truenorm.exact
from truenorm.verify.answers.packing import pack, unpack
from truenorm.verify.answers.question import Numbers, Question

__all__ = ["IN_THE_PACKAGE", "OF_THESE_SOURCES", "SOURCES", "answer"]

ROOM = Path(__file__).parent
IN_THE_PACKAGE = ROOM / "quick.zip"
"""The answers to the cases of the quick level; `python -m benchmarks.answers` makes it."""
OF_THESE_SOURCES = ROOM / "quick.sources"
"""The `SOURCES` that its answers were computed with."""
WORTH_KEEPING = 256
"""Elements of x: what has fewer is computed in the time that it takes to find a file."""
MOST_FILES = 5000
"""The full level of all types has 2,600 cases."""
WINDOWS = sys.platform == "win32"  # there, owner and mode say nothing


def _digest_of_sources() -> str:
    """Return a name for everything that decides what an answer is; without sources, none."""
    paths = [*Path(truenorm.exact.__file__).parent.glob("*.py"), *ROOM.glob("*.py")]
    paths += [ROOM.parent / name for name in ("oracle.py", "rounded.py", "types.py")]
    with suppress(OSError):
        texts = [(path.name, path.read_text(encoding="utf-8")) for path in paths]
        return sha256(repr(sorted(texts)).encode()).hexdigest()[:16]
    return ""


SOURCES = _digest_of_sources()


def answer(question: Question, compute: Callable[[], Numbers]) -> Numbers:
    """Return the exact numbers that are asked for; they are computed if nobody kept them."""
    name = question.name
    for look in (_package().get, _from_the_folder):
        content = look(name)
        numbers = unpack(question, content) if content else None
        if numbers is not None:
            return numbers
    numbers = compute()
    if question.given["x"].size >= WORTH_KEEPING:
        _keep(name, pack(question, numbers))
    return numbers


@cache
def _package() -> dict[str, bytes]:
    """Return what came with the package, if it belongs to these sources."""
    with suppress(OSError, zipfile.BadZipFile):
        if SOURCES and OF_THESE_SOURCES.read_text(encoding="utf-8").strip() == SOURCES:
            with zipfile.ZipFile(IN_THE_PACKAGE) as archive:
                return {name: archive.read(name) for name in archive.namelist()}
    return {}


def _places() -> tuple[Path, Path]:
    """Return the folder of the user's, and the one in it for these sources."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = Path(os.environ.get("TRUENORM_CACHE_DIR") or Path(caches) / "truenorm")
    return place, place / f"answers-{SOURCES}"


def _from_the_folder(name: str) -> bytes | None:
    """Return what was kept, if nobody else can have written it."""
    with suppress(OSError, RuntimeError):  # there is no file; there is no home
        if SOURCES and all(map(_is_ours, _places())):
            with (_places()[1] / name).open("rb") as file:
                # Of the open file: its folder can be exchanged after it was looked at.
                return file.read() if _only_we_write(os.fstat(file.fileno())) else None
    return None


def _keep(name: str, content: bytes) -> None:
    """Keep this in the folder, if that is possible."""
    with suppress(OSError, RuntimeError):
        place, folder = _places()
        # Root must not make folders in somebody's home, who could not use them.
        above = next(each for each in (place, *place.parents) if each.exists())
        if not SOURCES or not (WINDOWS or above.stat().st_uid in {0, os.geteuid()}):
            return
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_ours(folder) or len(list(folder.iterdir())) >= MOST_FILES:
            return
        handle, unnamed = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            # Another process sees the whole file or none.
            Path(unnamed).replace(folder / name)
        finally:
            Path(unnamed).unlink(missing_ok=True)


def _is_ours(place: Path) -> bool:
    """Tell whether a folder, and the link to it if it is one, is ours and closed to others."""
    return WINDOWS or (place.lstat().st_uid == os.geteuid() and _only_we_write(place.stat()))


def _only_we_write(status: os.stat_result) -> bool:
    """Tell whether what has this status is ours, and no other user can write to it."""
    return WINDOWS or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
