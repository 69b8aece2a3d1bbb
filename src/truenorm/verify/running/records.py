"""How a subject is called with a case, and the record of each call, which grading reads."""

import math
import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from truenorm.verify.operation import Case, padded, with_idle_rows
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array

PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"
LATER, TWICE, REVERSED, MANY = "later", "twice", "reversed", "many"
TILED, LARGE, LARGE_FORWARD = "tiled", "large", "large forward"
REPEATED_ROWS = (TILED, LARGE, LARGE_FORWARD)
"""Calls that repeat the rows of the case: see `truenorm.verify.running.tiled`."""
PAUSED = "paused"
AFTER_OTHERS, ALONE = "after others", "alone"
PAUSE_SECONDS = 0.1
"""How long a paused call waits for a thread of the subject that writes to its results."""
PADDING_ROWS: dict[str, tuple[float, ...]] = {
    "zeros below": (0.0,) * 5,
    "not finite below": (math.nan, math.inf, -math.inf),
}
"""Calls with padding rows, and the value that fills each of these rows."""
IDLE_ROWS = {"idle below": False, "idle among": True}
"""Calls with rows whose incoming gradients are zero, and True if these are among the others."""
GRADIENT_LAYOUTS = {
    f"{layout} gradients": layout for layout in ("strided", "padded", "transposed", "read-only")
}
"""Calls whose incoming gradients have another memory layout than x, and that layout."""
SAME_SHAPE = (PLAIN, AGAIN, INTERLEAVED, LATER, TWICE, REVERSED, PAUSED)
"""Calls in which all rows of the case are passed, and no others: all that `only_shape` permits."""
SAME_ROWS = (ROWS, REVERSED, *PADDING_ROWS)
"""Calls with rows of the case, each of which must have the same bits as in the plain call."""
BATCH_SIZES = {
    "batch": (1, 7, 128, 255, 256, 257),
    "batch-sizes": (300, *(2**k + more for k in (9, 10, 11, 12) for more in (-1, 0, 1))),
}
"""Numbers of rows, by family. Kernels choose block sizes by the number of rows, often at powers
of two, so each power is tried with one row less and one row more."""
TILED_SIZES = {
    "served": (1, 2, 7, 8, 9, 255, 256, 257, 512),
    "row-counts": (8191, 8192, 8193, 2**14, 2**15, 2**16),
}
"""Numbers of rows, by family: each of the rows must have the same bits as in the plain call."""
MANY_CALLS = 3000
"""How often the family `repeated` is called: so a race in one of 500 calls shows."""
MANY_SECONDS, MOST_SECONDS, FEW_CALLS = 0.2, 1.5, 1000
"""Processor time after which no other of these calls is made; the longer one until there were
`FEW_CALLS`."""
FEW_ELEMENTS = 2**9
"""Elements of x in a case that is also called after other cases."""
CHUNK = 128
RUNS = 8
"""Number of calls with many rows: sums in random order may have equal bits by chance."""


class GaveUpError(Exception):
    """The subject crashed or hung too often, so the remaining cases are not run."""


class CannotRunError(Exception):
    """The subject could not be loaded, started or called."""


MESSAGE_LENGTH = 2000
PACKAGE = str(Path(__file__).parents[2]) + os.sep
"""The folder of truenorm."""
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


def raised_at(error: BaseException) -> str:
    """Return the line that raised an error; nothing if truenorm's call was refused before."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(PACKAGE):
            line = f": {frame.line}" if frame.line else ""
            return f"in line {frame.lineno} of {Path(frame.filename).name}{line}"
    return ""


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


class Call(NamedTuple):
    """One way to call a subject with a case.

    ``plain`` and ``again`` are one forward and one backward pass. ``interleaved`` runs the forward
    pass of another input between the two. ``rows`` passes only the rows from start to stop.
    ``later`` reads the results after another pair of passes, ``paused`` after `PAUSE_SECONDS`.
    ``after others`` makes the calls of `other_cases` first. ``alone`` is the first call of a new
    process.
    ``twice`` calls backward two times and records the second results. ``many`` makes up to `stop`
    equal calls, up to the first whose bits differ. ``tiled`` repeats the rows until there are
    `stop` of them; its record has one copy of the rows. So do ``large`` and ``large forward``,
    which has no backward pass; their final records have the rows from start to stop. ``reversed``
    passes the last row first.
    `PADDING_ROWS`, `IDLE_ROWS` and `GRADIENT_LAYOUTS` have the others.
    """

    kind: str = PLAIN
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        """Return the kind, and the rows if the call has only some."""
        return f"{self.kind} {self.start}:{self.stop}" if self.stop else self.kind


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


def calls_of(case: Case) -> list[Call]:
    """Return the calls that a case is run with.

    Every case has a plain call, ordinary input a second one, and many rows `RUNS` calls. Small
    cases of an odd width, which kernels pad, also have a call after others. Families of
    `TILED_SIZES` also have calls with more rows, and the family `repeated` has many calls. The
    family `batch` also has batches, chunks, reversed rows, padding, and passes between or after
    its own two. Families of an extension have the calls that the extension is about. The calls of
    the family `large` are not among them: see `truenorm.verify.grading.large_calls`.
    """
    calls = [Call(PLAIN)]
    rows, family = case.shape[0], case.family
    if case.kind == "ordinary":
        calls += [Call(AGAIN)] * (RUNS - 1 if family in ("batch", "many-rows") else 1)
        if family == "normal" and case.shape[1] % 2 and math.prod(case.shape) <= FEW_ELEMENTS:
            calls.append(Call(AFTER_OTHERS))
    calls += [Call(ROWS, 0, size) for size in BATCH_SIZES.get(family, ()) if size < rows]
    calls += [Call(TILED, 0, size) for size in TILED_SIZES.get(family, ())]
    if family == "repeated":
        calls.append(Call(MANY, 0, MANY_CALLS))
    if family == "batch" and case.kind == "ordinary":  # once for each type: it takes its time
        calls.append(Call(PAUSED))
    if family == "batch":
        calls += [Call(LATER), Call(INTERLEAVED), Call(TWICE), Call(REVERSED)]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
        calls += [
            Call(ROWS, start, min(start + CHUNK, rows)) for start in range(CHUNK, rows, CHUNK)
        ]
        calls += map(Call, PADDING_ROWS)
    if family in ("batch", "idle-rows") and case.operation.outputs_of(backward=True):
        calls += map(Call, IDLE_ROWS)
    if family == "layouts-of-gradients":
        calls += map(Call, GRADIENT_LAYOUTS)
    return [call for call in calls if not case.only_shape or call.kind in SAME_SHAPE]


def case_of_call(case: Case, call: Call) -> Case:
    """Return the case with the rows and the layout of a call."""
    kind = call.kind
    if kind in (ROWS, REVERSED):
        return case.part(matching_rows(case, call)[0])
    if kind in PADDING_ROWS:
        return padded(case, PADDING_ROWS[kind])
    if kind in IDLE_ROWS:
        return with_idle_rows(case, among=IDLE_ROWS[kind])
    if kind in GRADIENT_LAYOUTS:
        return replace(case, gradient_layout=GRADIENT_LAYOUTS[kind])
    if kind in REPEATED_ROWS:
        return case.tiled(-(-call.stop // case.shape[0])).part(slice(call.stop))
    return case


def matching_rows(case: Case, call: Call) -> tuple[slice, slice]:
    """Return the rows of a case that one of `SAME_ROWS` has, and their rows in its results."""
    if call.kind == ROWS:
        return slice(call.start, call.stop), slice(None)
    if call.kind == REVERSED:
        return slice(None, None, -1), slice(None)
    return slice(None), slice(case.shape[0])


def other_rows(case: Case) -> dict[str, Array]:
    """Return other rows of the same shape, whose results have different bits."""
    return {name: (rows[::-1] * rows.dtype.type(-2)).copy() for name, rows in case.rows.items()}
