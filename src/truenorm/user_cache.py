"""Cache files in a folder of the user, protected against damage and against other users.

If the folder cannot be used, `read` and `write` raise OSError, or RuntimeError if the user has no
home directory; callers then work without a cache.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

# Owner and mode have no meaning there.
WINDOWS = sys.platform == "win32"


def read(folder: str, name: str) -> bytes:
    """Return the content of a file; raise OSError if it is damaged or others can write it."""
    inner = _root() / folder
    _check_private(inner.parent)
    _check_private(inner)
    with (inner / name).open("rb") as file:
        # Check the open file: its folder can be replaced after the check above.
        if not _is_private(os.fstat(file.fileno())):
            raise PermissionError(f"other users can write to {file.name}")
        content = file.read()
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        raise OSError(f"{inner / name} is damaged")
    return content[32:]


def write(folder: str, name: str, content: bytes) -> Path:
    """Write a file atomically, and return its path."""
    inner = _root() / folder
    above = next(path for path in inner.parents if path.exists())
    if not WINDOWS and above.stat().st_uid not in {0, os.geteuid()}:
        raise PermissionError(f"{above} belongs to another user")
    for path in (inner.parent, inner):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(path)
    with tempfile.TemporaryDirectory(dir=inner) as temporary:
        unfinished = Path(temporary, name)
        unfinished.touch(mode=0o600)
        unfinished.write_bytes(hashlib.sha256(content).digest() + content)
        return unfinished.replace(inner / name)


def _root() -> Path:
    if chosen := os.environ.get("TRUENORM_CACHE_DIR"):
        return Path(chosen)
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (caches if caches.is_absolute() else Path.home() / ".cache") / "truenorm"


def _check_private(folder: Path) -> None:
    """Raise PermissionError unless the folder, and a link to it, belong to this user alone."""
    if not (WINDOWS or folder.lstat().st_uid == os.geteuid()) or not _is_private(folder.stat()):
        raise PermissionError(f"{folder} must be owned and writable by this user alone")


def _is_private(status: os.stat_result) -> bool:
    """Return True if this user is the owner, and no other user can write."""
    return WINDOWS or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
