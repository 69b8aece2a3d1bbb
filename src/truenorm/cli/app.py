"""The Typer application with all commands."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import truenorm
from truenorm.tools.command_texts import DOCTOR, GRADCHECK

GROUPS = {
    "Judge kernels": {
        "verify": "verify",
        "compare": "compare",
        "record": "record",
        "judge": "judge",
        "score": "score",
        "vectors": "commands",
    },
    "Check gradients": {"gradcheck": "commands"},
    "Examine this installation": {"doctor": "commands"},
}
"""By title in the help and by name of the command: the module in this folder that has the function
``NAME_command``."""
COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}

SHARED_TEXTS = {"doctor": DOCTOR, "gradcheck": GRADCHECK}
"""The help of commands that also run without Typer; the others have it as their docstring."""


class GroupedCommands(TyperGroup):
    """All commands; the help lists them in groups, and an error quotes the wrong value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse NUL characters, which no file name has."""
        if wrong := [each for each in args if "\0" in each]:
            ctx.fail(f"arguments must not have NUL characters, got {wrong[0]!r}")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of the arguments."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # The message of Typer says what was expected, its cause which value was given.
            details: list[Any] = getattr(error.__cause__, "errors", list)()
            error.message = error.message.removeprefix("Value error, ")
            if details and repr(details[0]["input"]) not in error.message:
                error.message += f"; got {details[0]['input']!r}"
            raise

    def format_commands(self, _: Any, formatter: Any) -> None:
        """Write one section for each group of commands."""
        width = max(map(len, COMMANDS))
        limit = formatter.width - width - 6
        for title, names in GROUPS.items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(limit))
                for name in names
                if name in self.commands
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="truenorm",
    cls=GroupedCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Importing all modules takes longer than most commands run: import the requested one only.
for name in [each for each in COMMANDS if each in sys.argv[1:2]] or COMMANDS:
    module = import_module(f"truenorm.cli.{COMMANDS[name]}")
    shared = SHARED_TEXTS.get(name)
    text = shared.for_typer(f"truenorm {name}") if shared else None
    app.command(name, help=text)(getattr(module, f"{name}_command"))


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
