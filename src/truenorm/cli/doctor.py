"""``truenorm doctor``: find out whether this installation is in order."""

import sys
from typing import Annotated

import typer
from rich.console import Console

from truenorm.cli.progress import progress_bar
from truenorm.doctor import examine
from truenorm.doctor.terminal import show
from truenorm.doctor.text import to_text
from truenorm.tools import strict_json

__all__ = ["command"]


def command(
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also check the gradients and judge truenorm itself: about a minute."
        ),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON, and nothing else.")
    ] = False,
) -> None:
    """Look at this installation, test it, and say what is wrong.

    It shows versions, backends, threads, the processor and where compiled kernels are kept, and
    compares a few results of each type and backend with exact answers. That takes seconds; the
    very first time, kernels are compiled as well, which takes a minute or more.

    In a pipe the output is plain text, ready to be pasted into an issue.

    \b
        truenorm doctor
        truenorm doctor --full > my_report.txt

    Exit codes:

    \b
        0  healthy
        1  something is wrong; the lines with -> say what to do
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, progress=progress)
    if json:
        typer.echo(strict_json.dumps(diagnosis.as_dict()))
    elif sys.stdout.isatty():
        show(diagnosis, Console(highlight=False))
    else:
        typer.echo(to_text(diagnosis))
    raise typer.Exit(0 if diagnosis.healthy else 1)
