"""Files for the next process, in a folder of the user's: each is whole, and nobody else wrote it.

There is one place, and where that cannot be used there is none: `read` and `write` then raise an
OSError, or a RuntimeError if the user has no home, and callers do without.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

__all__ = ["read", "write"]

# There, owner and mode say nothing.
WINDOWS = sys.platform == "win32"


def _digest(content: bytes) -> bytes:
    """Return 32 bytes that no other content has."""
    return hashlib.sha256(content).digest()


def read(folder: str, name: str) -> bytes:
    """Return what was written under this name, if it is whole and nobody else can have done it."""
    inner = _place() / folder
    _refuse_others(inner.parent)
    _refuse_others(inner)
    with (inner / name).open("rb") as file:
        # Of the open file: its folder can be exchanged after it was looked at.
        if not _only_we_write(os.fstat(file.fileno())):
            raise PermissionError(f"others can write to {file.name}")
        content = file.read()
    if _digest(content[32:]) != content[:32]:
        raise OSError(f"{inner / name} is damaged")
    return content[32:]


def write(folder: str, name: str, content: bytes) -> Path:
    """Keep this, and return the file. Another process sees the whole file or none."""
    inner = _place() / folder
    above = next(path for path in inner.parents if path.exists())
    if not WINDOWS and above.stat().st_uid not in {0, os.geteuid()}:
        raise PermissionError(f"{above} is of a user who could not use what we make there")
    for made in (inner.parent, inner):
        made.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_others(made)
    with tempfile.TemporaryDirectory(dir=inner) as unseen:
        unfinished = Path(unseen, name)
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(_digest(content) + content)
        return unfinished.replace(inner / name)


def _place() -> Path:
    if chosen := os.environ.get("TRUENORM_CACHE_DIR"):
        return Path(chosen)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path.home() / ".cache") / "truenorm"


def _refuse_others(folder: Path) -> None:
    """Raise an error unless a folder, and the link to it if it is one, is ours alone."""
    if not (WINDOWS or folder.lstat().st_uid == os.geteuid()) or not _only_we_write(folder.stat()):
        raise PermissionError(f"{folder} is not ours alone")


def _only_we_write(status: os.stat_result) -> bool:
    """Tell whether what has this status is ours, and no other user can write to it."""
    return WINDOWS or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
