"""The ``truenorm`` command line.

Commands are thin: each parses its options, makes one call of the package and prints the result.
"""

import sys
import traceback
from typing import NoReturn

from truenorm.tools.text import printable

REQUIRED = ("typer", "rich")
CANNOT_RUN = 2


def stop(message: str) -> NoReturn:
    """Print on stderr why the command cannot run and what to do, and exit with code 2."""
    # A message may quote a user's file: its control characters must not reach the terminal.
    lines = [printable(line) for line in message.strip().splitlines()]
    sys.stderr.write("truenorm: " + "\n".join(lines) + "\n")
    raise SystemExit(CANNOT_RUN)


def main() -> None:
    """Run the command line."""
    try:
        from truenorm.cli.app import app
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in REQUIRED:
            raise
        sys.stderr.write(
            "the truenorm command needs typer and rich: pip install 'truenorm[verify]'\n"
        )
        raise SystemExit(CANNOT_RUN) from None
    for stream in (sys.stdout, sys.stderr):
        # Print characters that the terminal's encoding lacks as escapes instead of failing.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        app(prog_name="truenorm")
    except Exception:
        # Python would exit with 1, which means here that the kernel under test has a bug.
        traceback.print_exc()
        stop("this is a bug of truenorm, not of your code: please report the lines above")
