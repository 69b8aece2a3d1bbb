"""A bar that tells how far a long command is: on stderr, and for people only."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress
from rich.console import Console

from truenorm.tools.progress import Progress
from truenorm.tools.text import one_line

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """Show a bar while the block runs; give None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.fields[count]}", markup=False),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[what]}", markup=False, style="dim"),
    )
    console = Console(file=sys.stderr)
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, count="", what="")

        def update(done: int, total: int, what: str) -> None:
            # What is named is still to be done, so the bar is never full, and the clock runs on.
            count = f"{done}/{total}"
            bar.update(task, completed=done, total=total + 1, count=count, what=one_line(what))

        yield update
