"""Exit codes, messages and output shared by the commands, with and without Typer."""

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from truenorm.tools.text import printable

CANNOT_RUN = 2


def stop(message: str) -> NoReturn:
    """Print on stderr why the command cannot run and what to do, and exit with code 2."""
    # A message may quote a user's file: its control characters must not reach the terminal.
    lines = [printable(line) for line in message.strip().splitlines()]
    with suppress(OSError):  # stderr may be full or closed: the exit code still says it
        sys.stderr.write("truenorm: " + "\n".join(lines) + "\n")
        sys.stderr.flush()
    raise SystemExit(CANNOT_RUN)


def run_command(command: Callable[[], object]) -> None:
    """Run a command. Exit with code 2 if it has a bug, or if its output cannot be written.

    Python would exit with 1, which means here that the kernel under test has a bug.
    """
    # Python sets a stream to None if it is closed.
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stdout is None:
        stop("stdout is closed: send it to a file or a pipe")
    for stream in (sys.stdout, sys.stderr):
        # Print characters that the terminal's encoding lacks as escapes instead of failing.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        command()
        sys.stdout.flush()
    except SystemExit as ending:
        # Typer exits with 1 if the reader of a pipe has gone.
        if isinstance(ending.__context__, BrokenPipeError):
            _discard_output()
            raise SystemExit(CANNOT_RUN) from None
        raise
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(CANNOT_RUN) from None
    except MemoryError as error:
        stop(f"not enough memory: {str(error) or 'no reason given'}; give a smaller shape or file")
    except OSError as error:
        _discard_output()
        stop(f"cannot write the output: {error}; send it to another place")
    except Exception:
        traceback.print_exc()
        stop("this is a bug of truenorm, not of your code: please report the lines above")


def _discard_output() -> None:
    """Send buffered output nowhere: Python would fail again when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
