"""What a subject did: the results of one call, or how it failed. Grading looks at nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from truenorm.verify.types import Array

__all__ = ["AGAIN", "INTERLEAVED", "OUTPUTS", "PLAIN", "ROWS", "Call", "Record"]

OUTPUTS = ("y", "dx", "dgamma", "dbeta")
PLAIN, AGAIN, INTERLEAVED, ROWS = "plain", "again", "interleaved", "rows"


class Call(NamedTuple):
    """How a case is put to the subject.

    ``plain`` and ``again`` are one forward and one backward pass. ``interleaved`` has the forward
    pass of another input between the two. ``rows`` gives the rows from start to stop alone.
    """

    kind: str = PLAIN
    start: int = 0
    stop: int = 0

    def __str__(self) -> str:
        """Return a word or two."""
        return f"rows {self.start}:{self.stop}" if self.kind == ROWS else self.kind


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
    """

    case: str
    call: Call
    results: Mapping[str, Array | None] = field(default_factory=dict, repr=False)
    damaged: tuple[str, ...] = ()
    failure: str = ""
    seconds: float = 0.0
