"""What a subject did: the results of one call, or how it failed. Grading looks at nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from truenorm.verify.types import Array

__all__ = [
    *("AGAIN", "INTERLEAVED", "LARGE", "LATER", "PLAIN", "ROWS", "TWICE"),
    *("OUTPUTS", "Call", "Record"),
]

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"
LATER, TWICE, LARGE = "later", "twice", "large"


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
    """

    case: str
    call: Call
    results: Mapping[str, Array | None] = field(default_factory=dict, repr=False)
    damaged: tuple[str, ...] = ()
    failure: str = ""
    seconds: float = 0.0
    left_out: str = ""
