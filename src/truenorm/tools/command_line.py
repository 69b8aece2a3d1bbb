"""Exit codes, messages and output shared by the commands, with and without Typer."""

import os
import re
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from truenorm.tools.text import printable

CANNOT_RUN = 2
WORKFLOW_COMMAND = re.compile(r"(?:\A|[\r\n])\s*:(?=:)|##(?=\[)")


class PlainStream:
    """A stream of which GitHub executes no line, whatever text of a kernel it has.

    A job of GitHub executes a line that begins with ``::``, also after white space, and ``##[`` at
    any place. A backslash breaks both; it is here, since a long line is broken later than its text
    is made.
    """

    buffer = None  # Typer would write to it

    def __init__(self, stream: Any) -> None:
        self._stream, self._line = stream, ""

    def write(self, text: str) -> int:
        """Write a text, which may continue the line of the last one."""
        known, line = len(self._line), self._line + text
        ends = [0, *(match.end() - known for match in WORKFLOW_COMMAND.finditer(line))]
        places = [*(place for place in ends if place >= 0), len(text)]
        parts = [text[start:stop] for start, stop in pairwise(places)]
        line = re.split("[\r\n]", line)[-1]
        self._line = line if line.strip() in ("", ":") else f"-{line[-2:]}"
        self._stream.write("\\".join(parts))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the stream."""
        return getattr(self._stream, name)


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
    with redirect_stdout(PlainStream(sys.stdout)), redirect_stderr(PlainStream(sys.stderr)):
        _run(command)


def _run(command: Callable[[], object]) -> None:
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
