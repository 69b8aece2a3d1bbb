"""The command ``truenorm``. Its files are thin: each command is one call of the package."""

import sys
import traceback
from typing import NoReturn

from truenorm.tools.text import printable

NEEDED = ("typer", "rich")
CANNOT_RUN = 2


def stop(message: str) -> NoReturn:
    """Say on stderr why the command cannot run and what to do next, and exit with 2."""
    # Line by line: what a file of somebody's says must not command the terminal.
    lines = [printable(line) for line in message.strip().splitlines()]
    sys.stderr.write("truenorm: " + "\n".join(lines) + "\n")
    raise SystemExit(CANNOT_RUN)


def main() -> None:
    """Run the command line."""
    try:
        from truenorm.cli.app import app
    except ImportError as missing:
        if (missing.name or "").partition(".")[0] not in NEEDED:
            raise
        sys.stderr.write(
            "the truenorm command needs typer and rich: pip install 'truenorm[verify]'\n"
        )
        raise SystemExit(CANNOT_RUN) from None
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal's encoding lacks is no reason to lose a report.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="truenorm")
    except Exception:
        # Python would exit with 1, which here means that the subject has a bug.
        traceback.print_exc()
        stop("this is a bug of truenorm, not of your code: please report the lines above")
