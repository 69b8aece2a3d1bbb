"""The Typer application with all commands."""

import sys
from importlib import import_module
from typing import Annotated

import typer

import truenorm

COMMANDS = {
    "verify": "verify",
    "audit": "audit",
    **dict.fromkeys(("vectors", "gradcheck", "bench", "cost", "demo", "doctor"), "commands"),
}
"""The module in this folder that has the function ``NAME_command``, by name of the command."""

app = typer.Typer(
    name="truenorm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Importing all modules takes longer than most commands run: import the requested one only.
for name in [each for each in COMMANDS if each in sys.argv[1:2]] or COMMANDS:
    module = import_module(f"truenorm.cli.{COMMANDS[name]}")
    app.command(name)(getattr(module, f"{name}_command"))


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"truenorm {truenorm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Correctly rounded layer norm and RMSNorm, and a judge of other implementations.

    Start with: truenorm verify --help
    """
    assert not version  # the callback has exited
