"""Options and output shared by the commands."""

import math
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import progress
from rich.console import Console

from truenorm.tools.command_line import stop
from truenorm.tools.command_texts import JSON
from truenorm.tools.progress import Progress
from truenorm.tools.text import one_line


class Dtype(StrEnum):
    """Names of floating-point types. Typer does not support a list of a Literal."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


def option(metavar: str, text: str, **more: Any) -> Any:
    """Return an option with a help text; its default is shown only if `more` has a text for it."""
    return typer.Option(metavar=metavar, help=text, **{"show_default": False, **more})


def argument(metavar: str, text: str) -> Any:
    """Return an argument with a help text."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


LevelName = Literal["quick", "full"]
OperationOption = Annotated[
    str,
    typer.Option(
        metavar="NAME[,OPTION=...]",
        help="The operation: layer_norm, rms_norm, or any other that 'truenorm verify --help' "
        "lists.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help=JSON)]


@contextmanager
def stop_on(*errors: type[Exception]) -> Iterator[None]:
    """Stop the command with the message of any of these errors."""
    try:
        yield
    except errors as error:
        stop(str(error))


def check_positive(option: str, value: float) -> None:
    """Stop unless the value of an option is a finite number above zero."""
    if not 0 < value < math.inf:
        stop(f"{option} must be a positive number, got {value:g}")


def check_writable(option: str, file: Path) -> None:
    """Stop if a file cannot be created at this path."""
    if file.is_dir() or not file.parent.is_dir():
        stop(f"cannot write {file}: give {option} a file in a folder that exists")


FRESH, FRESH_SEEDS = "fresh", 2**31


def parse_seed(seed: str) -> int:
    """Return the seed of an option: a number, or for ``fresh`` one that is new each time."""
    if seed == FRESH:
        return 1 + secrets.randbelow(FRESH_SEEDS)
    if not seed.isdecimal():
        stop(f"--seed must be a number or {FRESH}, got {seed!r}")
    return int(seed)


def html_writer(file: Path | None) -> Callable[[object], None]:
    """Return a function that writes a report to an HTML file; without a file it does nothing.

    Stop now, before a long run, if a package is missing, or if the file has another suffix or
    cannot be created.
    """
    if file is None:
        return lambda _: None
    for package in ("jinja2", "matplotlib"):
        if find_spec(package) is None:
            stop(f"--html needs the package {package}: pip install 'truenorm[verify]'")
    check_writable("--html", file)
    if file.suffix.lower() != ".html":
        stop(f"cannot write {file}: give --html a file that ends in .html")

    def write(report: object) -> None:
        try:
            import_module("truenorm.verify.report.html").write(report, file)
        except OSError as error:
            stop(f"cannot write {file}: {error.strerror}; give --html another file")
        sys.stderr.write(f"wrote {file}\n")

    return write


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show progress while the block runs: a bar, or lines if stderr is not a terminal."""
    with (_bar if sys.stderr.isatty() else _lines)(title) as update:
        yield update


@contextmanager
def _bar(title: str) -> Iterator[Progress]:
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(bar_width=24),
        progress.TextColumn("{task.fields[count]}", markup=False),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[item]}", markup=False, style="dim"),
    )
    console = Console(file=sys.stderr)
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None, count="", item="")

        def update(done: int, total: int, item: str) -> None:
            # The named item is still running: the bar is never full, so the clock goes on.
            count = f"{done}/{total}"
            bar.update(task, completed=done, total=total + 1, count=count, item=one_line(item))

        yield update


LINE_EVERY = 10.0
"""Seconds between two lines of progress."""


@contextmanager
def _lines(title: str) -> Iterator[Progress]:
    """Write a line from time to time, by a thread: the block may wait for one long call."""
    start, ended, latest = time.monotonic(), threading.Event(), [""]

    def write() -> None:
        while not ended.wait(LINE_EVERY):
            seconds = f"{time.monotonic() - start:.0f} s"
            sys.stderr.write(one_line(f"{title} {latest[0]} {seconds}") + "\n")
            sys.stderr.flush()

    def update(done: int, total: int, item: str) -> None:
        latest[0] = f"{done}/{total} {item}"

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield update
    finally:
        ended.set()
        writer.join()
