"""``truenorm bench``: time the operation on this machine."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES, Report, measure, shape_of
from truenorm.bench.terminal import show
from truenorm.cli import stop
from truenorm.cli.files import extra, written
from truenorm.cli.progress import progress_bar
from truenorm.cli.verify import Dtype
from truenorm.tools import strict_json

__all__ = ["command"]


def command(
    shapes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SHAPES",
            help="Such as 2x128x1024; the last number is D. By default eight shapes, from one row "
            "of 64 to 2048 rows of 4096.",
            show_default=False,
        ),
    ] = None,
    dtype: Annotated[Dtype, typer.Option(help="The type of the data.")] = Dtype.float32,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, help="The most threads truenorm may use.", show_default="as many as cores"
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, help="How often each contestant is timed.")
    ] = DEFAULT_ROUNDS,
    json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON, and nothing else.")
    ] = False,
    png: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also draw the times.", show_default=False),
    ] = None,
) -> None:
    """Time layer norm on this machine, forward and backward.

    Contestants are truenorm in its two modes (correct and fast), the textbook formula in NumPy,
    the same in float64 with the result cast, and a copy of the array, which cannot be beaten by
    much. They take turns, and what is shown are medians.

    By default it takes about a minute. The very first time on a machine, truenorm's kernels are
    compiled as well; how long that took is printed, and is in no other figure.

    \b
        truenorm bench
        truenorm bench 8x1024x4096 --threads 1
        truenorm bench --dtype float16 --png my_machine.png

    Exit codes:

    \b
        0  measured
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    write = None if png is None else _png_writer(png)
    try:
        chosen = [shape_of(text) for text in shapes] if shapes else DEFAULT_SHAPES
        with progress_bar("measuring") as progress:
            report = measure(
                chosen, dtype=dtype, threads=threads, rounds=rounds, progress=progress
            )
    except ValueError as refused:
        stop(str(refused))
    except MemoryError:
        stop("there is not enough memory for this shape: give a smaller one")
    if json:
        typer.echo(strict_json.dumps(report.as_dict()))
    else:
        show(report, Console(highlight=False))
    if write is not None:
        write(report)


def _png_writer(file: Path) -> Callable[[Report], None]:
    """Return what draws the times."""
    with extra("--png"):
        from truenorm.bench.picture import draw
    into_file = written("--png", file)
    return lambda report: into_file(lambda: draw(report, file))
