"""A report in a file beside what is printed: a page, or a picture."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from truenorm.cli import stop

__all__ = ["extra", "written"]


@contextmanager
def extra(option: str) -> Iterator[None]:
    """Turn a package that is missing into a message that says how to get it."""
    try:
        yield
    except ImportError as missing:
        stop(f"{option} needs the package {missing.name}: pip install 'truenorm[verify]'")


def written(option: str, file: Path, *endings: str) -> Callable[[Callable[[], object]], None]:
    """Return what calls a function that writes the file; what would prevent it is said now.

    A long run comes between the two.
    """
    if file.is_dir() or not file.parent.is_dir():
        stop(f"cannot write {file}: give {option} a file in a folder that exists")
    if endings and file.suffix.lower() not in endings:
        stop(f"cannot write {file}: give {option} a file that ends in {' or '.join(endings)}")

    def write(into: Callable[[], object]) -> None:
        try:
            into()
        except OSError as refused:
            stop(f"cannot write {file}: {refused.strerror}; give {option} another file")
        sys.stderr.write(f"wrote {file}\n")

    return write
