"""``truenorm demo``: show which ways to normalize a row lose their digits, and where."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from truenorm.cli.output import file_option, json_option, present, writer_of
from truenorm.cli.progress import progress_bar
from truenorm.demo.demonstration import DTYPES, SweptType, demonstrate
from truenorm.demo.page import show

__all__ = ["OutputName", "command"]

OutputName = Literal["y", "dx", "dgamma", "variance"]


def command(
    dtype: Annotated[
        SweptType | None,
        typer.Option(help="One type alone.", show_default="both, and named rows of float16"),
    ] = None,
    output: Annotated[
        OutputName, typer.Option(help="The result whose digits are counted against the offset.")
    ] = "y",
    size: Annotated[
        int, typer.Option(metavar="D", min=2, help="Elements of a row; the time grows with it.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Of the noise in the rows.")] = 0,
    json: Annotated[bool, json_option("all errors")] = False,
    png: Annotated[Path | None, file_option("Also draw all errors.")] = None,
) -> None:
    """Show where layer normalization loses its digits.

    One-pass, Welford, two-pass, corrected two-pass, a mean kept as two numbers, the textbook
    formula in float64 and truenorm are run on rows whose mean outgrows their spread, and compared
    with exact integers. Then each instability, with a row that triggers it. It takes some seconds.

    \b
        truenorm demo
        truenorm demo --dtype float32 --output dx
        truenorm demo --png my_errors.png
        truenorm demo --json > my_errors.json

    Exit codes:

    \b
        0  shown
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    write = writer_of("--png", png, "truenorm.demo.picture", ".png")
    with progress_bar("measuring") as progress:
        dtypes = DTYPES if dtype is None else (dtype,)
        report = demonstrate(dtypes, size=size, seed=seed, progress=progress)
    present(report, json=json, show=lambda console: show(report, console, output))
    write(report)
