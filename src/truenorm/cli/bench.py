"""``truenorm bench``: time the operation on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from truenorm.bench import DEFAULT_ROUNDS, DEFAULT_SHAPES, measure, shape_of
from truenorm.bench.page import show
from truenorm.cli import stop
from truenorm.cli.output import (
    Dtype,
    Operation,
    file_option,
    json_option,
    present,
    refusing,
    writer_of,
)
from truenorm.cli.progress import progress_bar

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
    operation: Annotated[Operation, typer.Option(help="Which norm.")] = Operation.layer_norm,
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
    json: Annotated[bool, json_option("the figures")] = False,
    png: Annotated[Path | None, file_option("Also draw the times.")] = None,
) -> None:
    """Time layer norm or RMSNorm on this machine, forward and backward.

    Contestants are truenorm in its two modes (correct and fast), the textbook formula in NumPy,
    the same in float64 with the result cast, and a copy of the array, which cannot be beaten by
    much. They take turns, and what is shown are medians.

    By default it takes about a minute. How much longer first calls took is printed, and is in no
    other figure.

    \b
        truenorm bench
        truenorm bench 8x1024x4096 --threads 1
        truenorm bench --operation rms_norm
        truenorm bench --dtype float16 --png my_machine.png

    Exit codes:

    \b
        0  measured
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    write = writer_of("--png", png, "truenorm.bench.picture")
    try:
        with refusing(ValueError), progress_bar("measuring") as progress:
            chosen = [shape_of(text) for text in shapes] if shapes else DEFAULT_SHAPES
            report = measure(
                chosen,
                operation=operation,
                dtype=dtype,
                threads=threads,
                rounds=rounds,
                progress=progress,
            )
    except MemoryError:
        stop("there is not enough memory for this shape: give a smaller one")
    present(report.as_dict(), json=json, show=lambda console: show(report, console))
    write(report)
