"""How long work says how far it is: to a listener, or on a line of the terminal that vanishes."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

__all__ = ["Progress", "announced", "status_line", "with_progress"]

Progress = Callable[[int, int, str], None]
"""Is told how many steps are done, of how many, and what comes next."""
Item = TypeVar("Item")
PATIENCE = 1.0
BETWEEN = 0.1
WIDTH = 24


def announced(
    items: Sequence[Item], progress: Progress | None, name: Callable[[Item], str]
) -> Iterator[Item]:
    """Yield the items, and tell the listener about each before it comes, if there is one."""
    for done, item in enumerate(items):
        if progress is not None:
            progress(done, len(items), name(item))
        yield item


def status_line(text: str = "") -> None:
    """Overwrite a line on stderr, if there is a terminal to look at; without text, clear it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def with_progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items; if it takes more than a second, say on a status line how many are done."""
    shown = time.monotonic() + PATIENCE
    drawn = False
    try:
        for done, item in enumerate(items):
            if time.monotonic() >= shown:
                filled = WIDTH * done // total
                status_line(f"{what} [{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}")
                shown, drawn = time.monotonic() + BETWEEN, True
            yield item
    finally:
        if drawn:
            status_line()
