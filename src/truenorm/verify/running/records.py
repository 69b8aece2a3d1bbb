"""How a case is put to a subject, and what came of it: all that grading looks at."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from truenorm.verify.operation import Case, padded, with_idle_rows
from truenorm.verify.types import Array

PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"
LATER, TWICE, LARGE, REVERSED = "later", "twice", "large", "reversed"
BELOW: dict[str, tuple[float, ...]] = {
    "zeros below": (0.0,) * 5,
    "not finite below": (math.nan, math.inf, -math.inf),
}
"""Calls with rows of padding, and the number that each of these rows is made of."""
IDLE = {"idle below": False, "idle among": True}
"""Calls with rows whose gradients are zero, and whether these are among the others."""
OF_GRADIENTS = {
    f"{layout} gradients": layout for layout in ("strided", "padded", "transposed", "read-only")
}
"""Calls with gradients that lie in memory otherwise than x, and how."""
SAME_ROWS = (ROWS, REVERSED, *BELOW)
"""Calls that have rows of the case, of which none may have other bits than in the plain one."""
BATCH_SIZES = {
    "batch": (1, 7, 128, 255, 256, 257),
    "batch-sizes": (300, *(2**k + more for k in (9, 10, 11, 12) for more in (-1, 0, 1))),
}
"""By family. A kernel may choose its block size by the number of rows; powers of two are where.
One row less and one more tell whether the power itself belongs to what is below or above; what
changes elsewhere differs between the largest size and some smaller one."""
CHUNK = 128
RUNS = 8
"""So often calls with many rows are made: sums in a random order may be the same by chance."""


class Call(NamedTuple):
    """How a case is put to the subject.

    ``plain`` and ``again`` are one forward and one backward pass. ``interleaved`` has the forward
    pass of another input between the two. ``rows`` gives the rows from start to stop alone.
    ``later`` looks at the results when another pair of passes is done. ``twice`` calls backward
    two times, and has the results of the second. ``large`` repeats the rows until there are
    `stop` of them; of its record, those from start to stop are left in the end. ``reversed`` has
    the last row first. `BELOW`, `IDLE` and `OF_GRADIENTS` have the others.
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

    Everything is called once, ordinary input twice, many rows more often; the family `batch` is
    also cut into batches and chunks, turned around and padded, and has other passes between its
    own two, or after them. What a subject must ask for has the calls that it is about. The call of
    the family `large` that gave it its name is not among them: `truenorm.verify.grading.checks`
    makes it.
    """
    calls = [Call(PLAIN)]
    rows, family = case.shape[0], case.family
    if case.kind == "ordinary":
        calls += [Call(AGAIN)] * (RUNS - 1 if family in ("batch", "many-rows") else 1)
    calls += [Call(ROWS, 0, size) for size in BATCH_SIZES.get(family, ()) if size < rows]
    if family == "batch":
        calls += [Call(LATER), Call(INTERLEAVED), Call(TWICE), Call(REVERSED)]
        calls += [Call(ROWS, rows - 1, rows), Call(ROWS, 3, rows)]
        calls += [
            Call(ROWS, start, min(start + CHUNK, rows)) for start in range(CHUNK, rows, CHUNK)
        ]
        calls += map(Call, BELOW)
    if family in ("batch", "idle-rows"):
        calls += map(Call, IDLE)
    if family == "layouts-of-gradients":
        calls += map(Call, OF_GRADIENTS)
    return calls


def given(case: Case, call: Call) -> Case:
    """Return the case with the rows that a call has, laid out as it has them."""
    kind = call.kind
    if kind in (ROWS, REVERSED):
        return case.part(matching(case, call)[0])
    if kind in BELOW:
        return padded(case, BELOW[kind])
    if kind in IDLE:
        return with_idle_rows(case, among=IDLE[kind])
    if kind in OF_GRADIENTS:
        return replace(case, gradient_layout=OF_GRADIENTS[kind])
    return case.tiled(call.stop // case.shape[0]) if kind == LARGE else case


def matching(case: Case, call: Call) -> tuple[slice, slice]:
    """Return the rows of a case that one of `SAME_ROWS` has, and which of its results those are.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> matching(tv.case("float32-batch-300x67"), Call("rows", 128, 256))
    (slice(128, 256, None), slice(None, None, None))
    """
    if call.kind == ROWS:
        return slice(call.start, call.stop), slice(None)
    if call.kind == REVERSED:
        return slice(None, None, -1), slice(None)
    return slice(None), slice(case.shape[0])


def others(case: Case) -> dict[str, Array]:
    """Return other rows of the same shape: no result of theirs has the same bits."""
    return {name: (rows[::-1] * rows.dtype.type(-2)).copy() for name, rows in case.rows.items()}
