"""What is known of one type when a symptom is to be explained that no hypothesis is about."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.answers.expected import Expected, computed
from truenorm.verify.causes.holding import apart
from truenorm.verify.operation import Case
from truenorm.verify.runs.calls import PLAIN, Record
from truenorm.verify.types import Array

__all__ = ["Explains", "Seen", "is_answer", "right_in"]


class Seen(NamedTuple):
    """A case, all that came back for it, and whether it shows the symptom."""

    case: Case
    records: Sequence[Record]
    wrong: bool

    def of_kind(self, kind: str) -> list[Record]:
        """Return what came of calls of a kind, as far as they returned."""
        return [each for each in self.records if each.call.kind == kind and not each.failure]

    def result(self, output: str, kind: str = PLAIN) -> Array | None:
        """Return a result of the first call of a kind, as rows or as one.

        Of another size it is a finding by itself, and explains no other.
        """
        shape = self.case.shape if self.case.operation.is_rows(output) else self.case.shape[1:]
        for record in self.of_kind(kind):
            found = record.results.get(output)
            if found is None or found.size != math.prod(shape):
                return None
            return found.reshape(shape)
        return None


Explains = Callable[[str, Sequence[Seen]], str]
"""Returns the cause of a symptom of one output, from all cases of a type; or nothing."""


def right_in(exact: Expected, output: str, result: Array) -> NDArray[np.bool_]:
    """Tell of each element whether it is as near to the exact answer as is asked for."""
    with np.errstate(all="ignore"):
        away = apart(result.astype(np.float64), exact.wide[output])
        return np.asarray(away <= exact.allowed(output))


def is_answer(case: Case, output: str, result: Array) -> bool:
    """Tell whether a result is the right one of a case that is made up to see just that."""
    exact = Expected(case, computed(case))
    return result.shape == exact.wide[output].shape and bool(right_in(exact, output, result).all())
