"""Progress of long work: a callback, or a temporary line on the terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[int, int, str], None]
"""Called with the number of finished steps, the total, and the name of the next step."""
Item = TypeVar("Item")
DELAY = 1.0
INTERVAL = 0.1
WIDTH = 24


def with_callback(
    items: Sequence[Item], progress: Progress | None, name: Callable[[Item], str]
) -> Iterator[Item]:
    """Yield the items, and call `progress`, if given, before each of them."""
    for done, item in enumerate(items):
        if progress is not None:
            progress(done, len(items), name(item))
        yield item


def status_line(text: str = "") -> None:
    """Overwrite the current line of stderr if it is a terminal; clear it if `text` is empty."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def with_progress(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Yield the items; after a second, show the number of finished ones on a status line."""
    next_update = time.monotonic() + DELAY
    drawn = False
    try:
        for done, item in enumerate(items):
            if time.monotonic() >= next_update:
                filled = WIDTH * done // total
                status_line(f"{title} [{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}")
                next_update, drawn = time.monotonic() + INTERVAL, True
            yield item
    finally:
        if drawn:
            status_line()
