"""What commands have in common: options, and what becomes of a report."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from rich import progress
from rich.console import Console

from truenorm.cli import stop
from truenorm.tools import strict_json
from truenorm.tools.progress import Progress
from truenorm.tools.text import one_line


class Dtype(StrEnum):
    """The types by name: a list of a Literal is beyond Typer."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"


class Operation(StrEnum):
    """The operations by name."""

    layer_norm = "layer_norm"
    rms_norm = "rms_norm"


def json_option(what: str) -> Any:
    """Return the option that every command has."""
    return typer.Option("--json", help=f"Print {what} as JSON, and nothing else.")


def file_option(purpose: str) -> Any:
    """Return the option for a page or a picture beside what is printed."""
    return typer.Option(metavar="FILE", help=purpose, show_default=False)


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn errors that say what to do into the message of a command that cannot run."""
    try:
        yield
    except errors as refused:
        stop(str(refused))


def present(report: object, *, json: bool, show: Callable[[Console], None]) -> None:
    """Print a report: as JSON, or for people."""
    if json:
        typer.echo(strict_json.dumps(report))
    else:
        show(Console(highlight=False))


def check_place(option: str, file: Path) -> None:
    """Stop where no file can be, before a long run."""
    if file.is_dir() or not file.parent.is_dir():
        stop(f"cannot write {file}: give {option} a file in a folder that exists")


def writer_of(
    option: str, file: Path | None, module: str, *endings: str
) -> Callable[[object], None]:
    """Return what writes a report to the file that an option names, by `write` of the module.

    What would prevent it is said now, since a long run comes in between: a package that is not
    installed, which the module imports, or a place where no file can be.
    """
    if file is None:
        return lambda _: None
    try:
        write = import_module(module).write
    except ImportError as missing:
        stop(f"{option} needs the package {missing.name}: pip install 'truenorm[verify]'")
    check_place(option, file)
    if endings and file.suffix.lower() not in endings:
        stop(f"cannot write {file}: give {option} a file that ends in {' or '.join(endings)}")

    def into_file(report: object) -> None:
        try:
            write(report, file)
        except OSError as refused:
            stop(f"cannot write {file}: {refused.strerror}; give {option} another file")
        sys.stderr.write(f"wrote {file}\n")

    return into_file


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
