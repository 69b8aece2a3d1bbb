"""The ``truenorm`` command line.

Commands are thin: each parses its options, makes one call of the package and prints the result.
"""

from truenorm.tools.command_line import run_command, stop

REQUIRED = ("typer", "rich")


def main() -> None:
    """Run the command line."""
    run_command(_run_app)


def _run_app() -> None:
    try:
        from truenorm.cli.app import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in REQUIRED:
            raise
        stop(
            "this command needs typer and rich: pip install 'truenorm[verify]'\n"
            "With NumPy alone: python -m truenorm.doctor, python -m truenorm.gradient_check"
        )
    app(prog_name="truenorm")
