"""Files of a user: open them, execute those of Python, and describe how they fail."""

import errno
import os
import stat
import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import IO

PACKAGE = Path(__file__).parents[1]
SHOWN_FRAMES = 3


class NotThereError(ValueError):
    """The file does not exist, or does not define the object of a target."""


def open_regular(path: Path, *, links: bool = False) -> IO[bytes]:
    """Open a regular file, to read it; raise OSError for a link, unless `links`, and any other.

    Reading a pipe or a device may block or never end, and a link leads to any file of the user.
    """
    flags = getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= 0 if links else getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        text = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise OSError(error.errno, text, str(path)) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(file, "rb")


def split_target(target: str, default: str) -> tuple[Path, str]:
    """Return the file and the name of ``file.py:name``; without a name, the default."""
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():  # no colon, or that of C:\\folder\\file.py
        file, name = target, default
    return Path(file), name


def resolved(path: Path) -> Path:
    """Return the absolute path of a file."""
    try:
        return path.resolve()
    except OSError as error:  # the current folder was deleted
        raise NotThereError(
            f"cannot find {path}: {error.strerror}; give an absolute path"
        ) from error


def run_file(path: Path) -> ModuleType:
    """Execute a file like a script, and return its module."""
    path = resolved(path)
    if path.is_dir():
        raise NotThereError(f"{path} is a folder; give file.py or file.py:name")
    if not path.is_file():
        raise NotThereError(f"there is no file {path}; give file.py or file.py:name")
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise NotThereError(f"{path} is no Python file; give file.py or file.py:name")
    module = module_from_spec(spec)
    # As for a script: it can import files of its folder, and its classes have a module.
    sys.path.insert(0, str(path.parent))
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def failure_text(error: BaseException) -> str:
    """Return the error of a user's file with the last lines of the user's code that led to it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith("<") and not _is_internal(frame.filename)
    ]
    lines = traceback.format_list(frames[-SHOWN_FRAMES:])
    return "".join([*lines, *traceback.format_exception_only(error)]).rstrip()


def _is_internal(file: str) -> bool:
    return Path(file).is_relative_to(PACKAGE)
