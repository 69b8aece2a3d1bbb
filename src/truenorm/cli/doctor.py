"""``truenorm doctor``: find out whether this installation is in order."""

import sys
from typing import Annotated

import typer

from truenorm.cli.output import json_option, present
from truenorm.cli.progress import progress_bar
from truenorm.doctor import examine
from truenorm.doctor.page import show, to_text

__all__ = ["command"]


def command(
    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Also check the gradients and judge truenorm itself: about a minute."
        ),
    ] = False,
    gpu: Annotated[
        bool,
        typer.Option("--gpu", help="Examine graphics processors instead: bits, then speed."),
    ] = False,
    json: Annotated[bool, json_option("what was found")] = False,
) -> None:
    """Look at this installation, test it, and say what is wrong.

    It shows versions, backends, threads and the processor, and compares a few results of each
    type and backend with exact answers. That takes seconds.

    With --gpu it looks for a graphics processor, compares thousands of results of each type with
    those of NumPy, to the bit, and times both passes beside a copy on the device: about a minute.
    A time of 1.00 is that of a copy which moves the same bytes, without those of dgamma and dbeta.

    In a pipe the output is plain text, ready to be pasted into an issue.

    \b
        truenorm doctor
        truenorm doctor --full > my_report.txt
        truenorm doctor --gpu > my_card.txt

    Exit codes:

    \b
        0  healthy
        1  something is wrong; the lines with -> say what to do
        2  it could not run; stderr says why
    """  # noqa: D301  (the backspace keeps lines as they are)
    with progress_bar("testing") as progress:
        diagnosis = examine(full=full, gpu=gpu, progress=progress)
    if sys.stdout.isatty() or json:
        present(diagnosis.as_dict(), json=json, show=lambda console: show(diagnosis, console))
    else:
        typer.echo(to_text(diagnosis))
    raise typer.Exit(0 if diagnosis.healthy else 1)
