"""A line that tells how far a long check is: on a terminal, and only after a second."""
# ruff: noqa: T201
# It prints that line.

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

__all__ = ["with_progress"]

Item = TypeVar("Item")
PATIENCE = 1.0
BETWEEN = 0.1


def with_progress(items: Iterable[Item], total: int, what: str) -> Iterator[Item]:
    """Yield the items, and say on stderr how many are done."""
    if not sys.stderr.isatty():
        yield from items
        return
    shown = time.monotonic() + PATIENCE
    drawn = False
    try:
        for done, item in enumerate(items):
            if time.monotonic() >= shown:
                filled = 24 * done // total
                bar = "#" * filled + "." * (24 - filled)
                print(f"\r{what} [{bar}] {done}/{total}", end="", file=sys.stderr, flush=True)
                shown, drawn = time.monotonic() + BETWEEN, True
            yield item
    finally:
        if drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
