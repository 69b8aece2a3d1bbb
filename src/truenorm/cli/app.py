"""The commands, by name.

To add one, write a file beside this one with a function ``command``, whose docstring is the help,
and name it in `COMMANDS`; docs/design has the whole list.
"""

from collections.abc import Callable
from typing import Annotated

import typer

import truenorm
from truenorm.cli import bench, cost, demo, doctor, gradcheck, vectors, verify

__all__ = ["COMMANDS", "app"]

COMMANDS: dict[str, Callable[..., None]] = {
    "verify": verify.command,
    "vectors": vectors.command,
    "gradcheck": gradcheck.command,
    "bench": bench.command,
    "cost": cost.command,
    "demo": demo.command,
    "doctor": doctor.command,
}

app = typer.Typer(
    name="truenorm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for name, command in COMMANDS.items():
    app.command(name)(command)


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
