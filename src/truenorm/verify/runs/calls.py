"""How a case is put to a subject, and what came of it: all that grading looks at."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from truenorm.verify.operation import Case
from truenorm.verify.types import Array

__all__ = [
    *("AGAIN", "INTERLEAVED", "LARGE", "LATER", "PLAIN", "ROWS", "TWICE"),
    *("Call", "GaveUpError", "Record", "Runner", "calls_of", "given", "others"),
]

PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"
LATER, TWICE, LARGE = "later", "twice", "large"
BATCH_SIZES = (1, 7, 128, 255, 256, 257)
"""A kernel may choose its block size by the number of rows; powers of two are where."""


class Call(NamedTuple):
    """How a case is put to the subject.

    ``plain`` and ``again`` are one forward and one backward pass. ``interleaved`` has the forward
    pass of another input between the two. ``rows`` gives the rows from start to stop alone.
    ``later`` looks at the results when another pair of passes is done. ``twice`` calls backward
    two times, and has the results of the second. ``large`` repeats the rows until there are
    `stop` of them; of its record, those from start to stop are left in the end.
    """

    kind: str = PLAIN
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        """Return a word or two."""
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
        The inputs that were no longer what they had been.
    failure : str
        How it ended if it did not return: the exception, a crash or a hang. Else empty.
    seconds : float
    left_out : str
        Why there is nothing to judge although the subject is not to be blamed. Else empty.
    holds : mapping of str to tuple of str
        By input that was damaged, or by result that other calls may have changed: the results
        whose bits it has; of a large call, what its elements are that are in no right place.
    deaths : int
        How many ends of its process it counts for: after the third, no more cases are run.
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


class GaveUpError(Exception):
    """The subject has crashed or hung too often for the rest to be worth the time."""


class Runner(Protocol):
    """Whatever can put a case to a subject."""

    @property
    def seconds(self) -> float:
        """How long one call may take."""

    def run(self, case: Case, call: Call) -> Record:
        """Return what came back."""


def calls_of(case: Case) -> list[Call]:
    """Return the ways in which a case is put to a subject.

    Everything is called once, ordinary input twice; the family `batch` is also cut into batches,
    and has other passes between its own two, or after them. The call of the family `large` that
    gave it its name is not among them: `truenorm.verify.grading.large` makes it.
    """
    calls = [Call(PLAIN)]
    if case.kind == "ordinary":
        calls.append(Call(AGAIN))
    if case.family == "batch":
        rows = case.shape[0]
        calls += [Call(LATER), Call(INTERLEAVED), Call(TWICE)]
        calls += [Call(ROWS, 0, size) for size in BATCH_SIZES if size < rows]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
    return calls


def given(case: Case, call: Call) -> Case:
    """Return the case with the rows that a call has."""
    if call.kind == ROWS:
        return case.part(slice(call.start, call.stop))
    return case.tiled(call.stop // case.shape[0]) if call.kind == LARGE else case


def others(case: Case) -> dict[str, Array]:
    """Return other rows of the same shape: no result of theirs has the same bits."""
    return {name: (rows[::-1] * rows.dtype.type(-2)).copy() for name, rows in case.rows.items()}
