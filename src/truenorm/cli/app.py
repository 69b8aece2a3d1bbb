"""The commands, by name.

To add one, write a file beside this one with a function ``command``, whose docstring is the help,
and name it in `COMMANDS`; docs/design has the whole list.
"""

import sys
from importlib import import_module
from typing import Annotated

import typer

import truenorm

__all__ = ["COMMANDS", "app"]

COMMANDS = ("verify", "audit", "vectors", "gradcheck", "bench", "cost", "demo", "doctor")

app = typer.Typer(
    name="truenorm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Importing all of them takes longer than most commands run: if one is asked for, it will do.
for name in [each for each in COMMANDS if each in sys.argv[1:2]] or COMMANDS:
    if name in ("verify", "audit"):
        app.command(name)(import_module(f"truenorm.cli.{name}").command)
    else:
        app.command(name)(getattr(import_module("truenorm.cli.commands"), f"{name}_command"))


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"truenorm {truenorm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Layer normalization whose numbers can be trusted, and a judge for everyone else's.

    Start with: truenorm verify --help
    """
    assert not version  # the callback has exited
