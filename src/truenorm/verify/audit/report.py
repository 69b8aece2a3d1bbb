"""What came of an audit: which wrong kernels the tests let pass, and what shows each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from truenorm.verify.operations.norms import Norm

__all__ = ["Audit", "Outcome", "Witness"]


@dataclass(frozen=True)
class Witness:
    """An input of the judge that shows a wrong kernel.

    `made` is the Python that makes it, `why` what it is, `symptom` what comes out.
    """

    case: str
    made: str
    why: str
    symptom: str


@dataclass(frozen=True)
class Outcome:
    """A wrong kernel in the tests.

    Attributes
    ----------
    name, words : str
        Its name, and what is wrong with it.
    caught : bool
        Whether a test failed.
    by : str
        The first test that did, or how the run ended otherwise.
    output : str
        The result in which it differed most from the right one, in proportion; nothing if no
        call of the tests showed a difference.
    difference, size : float
        By how much it did, and the largest number of the right result in that call.
    witness : Witness, optional
        What would have caught it.
    """

    name: str
    words: str
    caught: bool
    by: str = ""
    output: str = ""
    difference: float = 0.0
    size: float = 0.0
    witness: Witness | None = None


@dataclass(frozen=True)
class Audit:
    """Somebody's tests, with wrong kernels in the place of theirs.

    Attributes
    ----------
    replaced : str
    operation : Norm
    tests : tuple of str
        What pytest was given.
    calls, gradients : int
        How often the tests called the kernel, and asked for its gradients.
    dtypes : tuple of str
        The types of x in these calls.
    outcomes : tuple of Outcome
    left_out : mapping of str to str
        Wrong kernels that say nothing of these tests, and why.
    seconds : float
        What one run of the tests takes.
    machine : mapping of str to str
    """

    replaced: str
    operation: Norm
    tests: tuple[str, ...]
    calls: int
    gradients: int
    dtypes: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    left_out: Mapping[str, str]
    seconds: float
    machine: Mapping[str, str]

    @property
    def let_pass(self) -> tuple[Outcome, ...]:
        """The wrong kernels that no test failed."""
        return tuple(each for each in self.outcomes if not each.caught)

    @property
    def passed(self) -> bool:
        """Whether the tests caught all."""
        return not self.let_pass

    def as_dict(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return {
            "schema": "truenorm/audit-1",
            "passed": self.passed,
            **vars(self),
            "operation": self.operation.words,
        }
