"""The results of each call, which grading reads, and the protocol of the runners."""

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from truenorm.verify.calls import Call
from truenorm.verify.operation import Case
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array


class GaveUpError(Exception):
    """The subject crashed or hung too often, so the remaining cases are not run."""


class CannotRunError(Exception):
    """The subject could not be loaded, started or called."""


MESSAGE_LENGTH = 2000
PACKAGE = str(Path(__file__).parents[2]) + os.sep
"""The folder of truenorm."""
MOST_FRAMES = 10
"""Calls of a traceback that are shown: an autotuner of Triton is seven calls from its kernel."""
NO_DRIVER = "0 active drivers"
"""In the message of Triton where it finds no GPU."""


def describe_error(error: BaseException) -> str:
    """Return the type of an exception, and its message if it has one."""
    message = error_message(error)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{text}{triton_advice(text)}"


def error_message(error: BaseException) -> str:
    """Return the message of an exception, which may be very long or fail itself."""
    try:
        return str(error)[:MESSAGE_LENGTH]
    except Exception:
        return "(it cannot be printed)"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an error inside a kernel, the last calls of a long one.

    Return nothing if the call itself was refused.
    """
    frames = traceback.extract_tb(error.__traceback__)
    inside = [each for each in frames if not each.filename.startswith(PACKAGE)]
    return "".join(traceback.format_list(inside[-MOST_FRAMES:])).rstrip()


def triton_advice(message: str) -> str:
    """Return what to do about an error of Triton without a GPU, or nothing.

    Examples
    --------
    >>> triton_advice("RuntimeError: 0 active drivers ([]). There should only be one.")
    ' Triton found no GPU: set TRITON_INTERPRET=1 to run the kernel on the CPU'
    """
    is_set = os.environ.get("TRITON_INTERPRET", "0") != "0" or "TRITON_INTERPRET" in message
    if NO_DRIVER not in message or is_set:
        return ""
    return " Triton found no GPU: set TRITON_INTERPRET=1 to run the kernel on the CPU"


@dataclass(frozen=True, eq=False)
class Record:
    """The outcome of one call.

    Attributes
    ----------
    case : str
        The name of the case.
    call : Call
    results : mapping of str to ndarray or None
        By output, as the subject returned them: of any shape and type. An output that is missing
        was not returned.
    damaged : tuple of str
        The inputs that the subject changed.
    failure : str
        The exception, crash or hang if the call did not return, else empty.
    seconds : float
    left_out : str
        Why the call was not judged although the subject is not at fault, else empty.
    holds : mapping of str to tuple of str
        By damaged input, or by result that later calls may have changed: the results whose bits
        it has. For a call that repeats rows, the first row of the copy that is recorded if copies
        differ, and a description of the elements at wrong positions. For many calls, the number of
        the first whose bits differ.
    deaths : int
        Number of process exits this call caused: after the third, no more cases are run.
    predicted : float
        The seconds that the call would have taken, if it was left out since it is too slow.
    """

    case: str
    call: Call
    results: Mapping[str, Array | None] = field(default_factory=dict, repr=False)
    damaged: tuple[str, ...] = ()
    failure: str = ""
    seconds: float = 0.0
    left_out: str = ""
    holds: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deaths: int = 0
    predicted: float = 0.0


class Runner(Protocol):
    """Calls a subject: in this process, in a process of its own, or as a command."""

    @property
    def subject(self) -> Subject:
        """The subject that is called."""

    def run(self, case: Case, call: Call) -> Record:
        """Call the subject with a case and return the record."""
