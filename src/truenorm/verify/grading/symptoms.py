"""The findings of a check: the error of a result, and the symptom of a failed check.

`measure` compares a result with the exact answer, in ulp and in natural units.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case
from truenorm.verify.oracle import AnswerBounds, Expected
from truenorm.verify.running.records import Record
from truenorm.verify.types import Array

GUARDS = {
    "unsupported": "runs",
    "raised": "runs",
    "result": "runs",
    "shape": "runs",
    "type": "runs",
    "ordinary": "accuracy",
    "finite": "accuracy",
    "growth": "accuracy",
    "recipe": "recipe",
    "floor": "least scale",
    "biased": "rounding",
    "special": "special values",
    "subnormal": "subnormals kept",
    "repeat": "repeatable",
    "sums": "sums repeatable",
    "history": "repeatable",
    "position": "batch-invariant",
    "batch": "batch-invariant",
    "padding": "batch-invariant",
    "idle": "idle rows",
    "layout": "layouts of gradients",
    "large": "large calls",
    "inputs": "inputs kept",
    "overwritten": "results kept",
    "stale": "own state",
    "spent": "saved kept",
}
"""The checks by name with the verdict of each, the simplest symptoms first."""
UNEXPLAINED = 3
"""The power of kappa of an error that no power up to 2 explains."""


@dataclass(frozen=True)
class Error:
    """The error of one output of one case; `at` is the element with the largest excess."""

    ulp: float  # largest error
    natural: float  # largest error beyond one ulp, in natural units
    needs: int  # smallest power of kappa that explains every element, or UNEXPLAINED
    correct: bool  # each element is the exact answer rounded once, ties to even
    at: tuple[int, ...]
    ulp_at: float  # error of that element
    not_finite: bool  # that element is not finite and should be
    excess: float = 0.0  # its error divided by its tolerance


def measure(
    expected: Expected,
    output: str,
    result: Array,
    *,
    bounds: AnswerBounds | None = None,
) -> Error:
    """Measure the error of a result, over the elements whose exact answer is finite.

    The result must have the shape of the answer. `bounds` encloses answers that are not exact.
    """
    error, in_ulp, correct = expected.element_errors(output, result, bounds=bounds)
    if error.size == 0:
        return Error(0.0, 0.0, 0, True, (), 0.0, False)
    with np.errstate(all="ignore"):
        ulps = expected.ulps[output]
        natural = (error - ulps).clip(0) / (expected.unit(output) * expected.scale(output))
        excess = error / expected.allowed(output).clip(ulps)
    at = tuple(map(int, np.unravel_index(int(np.argmax(excess)), excess.shape)))
    powers = (
        power for power in range(UNEXPLAINED) if (error <= expected.allowed(output, power)).all()
    )
    return Error(
        ulp=float(in_ulp.max()),
        natural=float(np.nan_to_num(natural, nan=0.0, posinf=np.inf).max()),
        needs=next(powers, UNEXPLAINED),
        correct=bool(correct.all()),
        at=at,
        ulp_at=float(in_ulp[at]),
        not_finite=not np.isfinite(float(np.real(result[at]))),
        excess=float(excess[at]),
    )


def first_index(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Return the index of the first True element."""
    return tuple(map(int, np.argwhere(mask)[0]))


@dataclass(frozen=True)
class Symptom:
    """A check that failed for one output of one case.

    `right` and `allowed` are the answer and the tolerance at `at`, for a case whose answers
    cannot be recomputed by `expected`.
    """

    guard: str
    case: Case
    record: Record
    output: str
    text: str
    at: tuple[int, ...] = ()
    severity: float = 0.0
    natural: float = 0.0
    right: float | None = None
    allowed: float = 0.0

    @property
    def type_and_output(self) -> tuple[str, str]:
        """The type of the case, and the output."""
        return self.case.dtype, self.output


@dataclass(frozen=True)
class MeasuredResult:
    """A result and its error; `result` has the shape of the answer, and codes are decoded.

    `allowed` is the largest error of a stable result, in natural units.
    """

    case: Case
    record: Record
    output: str
    result: Array
    error: Error
    allowed: float

    @property
    def type_and_output(self) -> tuple[str, str]:
        """The type of the case, and the output."""
        return self.case.dtype, self.output
