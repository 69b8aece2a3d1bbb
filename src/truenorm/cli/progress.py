"""A bar that tells how far a long command is: on stderr, and for people only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from truenorm.verify.wording import one_line

__all__ = ["Callback", "progress_bar"]

Callback = Callable[[int, int, str], None]
"""Takes how many are done, of how many, and what comes next."""


@contextmanager
def progress_bar(title: str) -> Iterator[Callback | None]:
    """Show a bar while the block runs; give None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}", markup=False, style="dim"),
    )
    console = Console(file=sys.stderr)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, count="", what="")

        def update(done: int, total: int, what: str) -> None:
            # What is named is still to be done, so the bar is never full, and the clock runs on.
            count = f"{done}/{total}"
            bar.update(task, completed=done, total=total + 1, count=count, what=one_line(what))

        yield update
