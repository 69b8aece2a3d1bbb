"""What a gradient check found."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["GradientCheck", "InputCheck", "Verdict", "record_of"]

NOISY = (
    "The floor is above the tolerance: forward itself is too noisy here for this method. Try "
    "method='jet', or a forward that loses fewer digits."
)


class Verdict(StrEnum):
    """What can be said of a backward pass. INCONCLUSIVE: the method cannot see that closely."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL)


@dataclass(frozen=True)
class InputCheck:
    """How the gradient with respect to one input compares with derivatives of forward.

    Attributes
    ----------
    name : str
        What forward calls the input.
    tol : float
        The relative error that was allowed.
    error : float
        The largest difference between the two, relative to the size of the gradient.
    floor : float
        How much the method itself can account for, in the same units, where that is most.
    excess : float
        By how much a difference is above what the method can account for there: the largest.
    checked, size : int
        How many elements were checked one by one, of how many. None of them if random projections
        were checked, which every element takes part in.
    worst : tuple of int or None
        The index of the element with the largest error; None for projections.
    analytic, numeric : float
        That element, or projection, as backward gave it and as the method found it.
    why : str
        What the floor is made of, where that is more than rounding.
    """

    name: str
    tol: float
    error: float = 0.0
    floor: float = 0.0
    excess: float = 0.0
    checked: int = 0
    size: int = 0
    worst: tuple[int, ...] | None = None
    analytic: float = 0.0
    numeric: float = 0.0
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        """What follows; an error of NaN fails."""
        if math.isnan(self.error) or self.excess > self.tol:
            return Verdict.FAIL
        if self.error <= self.tol and self.floor <= self.tol:
            return Verdict.PASS
        return Verdict.INCONCLUSIVE

    def __str__(self) -> str:
        """Error, floor and coverage, and the worst element with both its values."""
        if not self.size:
            return "nothing to check: it has no elements"
        what = f"{self.checked} of {self.size} elements" if self.checked else "random projections"
        return (
            f"error {self.error:.1e}, floor {self.floor:.1e}, tolerance {self.tol:.0e} "
            f"({what}; worst{self._where}: {self._values})"
        )

    @property
    def summary(self) -> str:
        """The verdict and the worst element, in a few words."""
        return (
            f"{self.verdict}: gradient of {self.name}{self._where}: {self._values} "
            f"(error {self.error:.1e}, floor {self.floor:.1e}, tolerance {self.tol:.0e})"
        )

    @property
    def _where(self) -> str:
        return "" if self.worst is None else f" at {list(self.worst)}"

    @property
    def _values(self) -> str:
        return f"backward {self.analytic:.12g}, forward {self.numeric:.12g}"


UNCHECKED = InputCheck("", tol=math.nan, error=math.nan)
"""Of a backward that returned no gradient at all."""


@dataclass(frozen=True, repr=False)
class GradientCheck:
    """The outcome of `truenorm.gradcheck`; true for the verdict PASS only.

    ``repr()`` is one line, so that ``assert tn.gradcheck(...)`` says what is wrong; ``str()`` is
    a short report.

    Attributes
    ----------
    inputs : tuple of InputCheck or None
        One for each input; None where backward returned None.
    method : str
        How derivatives of forward were found: "jet", "complex" or "central".
    why : str
        Why that method, and what kept others from being used.
    """

    inputs: tuple[InputCheck | None, ...]
    method: str
    why: str

    @property
    def verdict(self) -> Verdict:
        """PASS if every gradient is within its tolerance and the method could see that."""
        found = (check.verdict for check in self.inputs if check is not None)
        return max(found, key=SEVERITY.index, default=Verdict.INCONCLUSIVE)

    @property
    def worst_input(self) -> int | None:
        """The number of the input with the worst verdict, and the largest error beside its tol."""
        ranks = {k: _rank(check) for k, check in enumerate(self.inputs) if check is not None}
        return max(ranks, key=ranks.__getitem__, default=None)

    @property
    def error(self) -> float:
        """The error of the worst input."""
        return self._worst_check.error

    @property
    def tol(self) -> float:
        """The tolerance of the worst input: each has its own, by the type of its gradient."""
        return self._worst_check.tol

    @property
    def floor(self) -> float:
        """The method's own noise, where it is largest."""
        return max((check.floor for check in self.inputs if check is not None), default=math.inf)

    @property
    def worst(self) -> tuple[int, ...] | None:
        """The index of the worst element within `worst_input`; None for projections."""
        return self._worst_check.worst

    @property
    def _worst_check(self) -> InputCheck:
        found = None if self.worst_input is None else self.inputs[self.worst_input]
        return UNCHECKED if found is None else found

    def __bool__(self) -> bool:
        """Return whether the verdict is PASS, so that a test can assert the result itself."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """Return the worst of it in one line."""
        found = self._worst_check.summary
        if self.worst_input is None:
            found = f"{self.verdict}: backward returned None alone"
        return f"<GradientCheck by {self.method}, {found}>"

    def __str__(self) -> str:
        """Verdict and method, and one line for each input."""
        lines = [f"{self.verdict}: gradient check by {self.method}"]
        for position, found in enumerate(self.inputs):
            if found is None:
                lines.append(f"  input {position}: skipped: backward returned None")
                continue
            lines.append(f"  {found.name}: {found.verdict}, {found}")
            if found.verdict is Verdict.INCONCLUSIVE and found.why:
                lines.append(f"    {found.why}")
            elif found.verdict is Verdict.INCONCLUSIVE and found.floor > found.tol:
                lines.append(f"    {NOISY}")
        lines.append(f"  {self.why}")
        return "\n".join(lines)


def _rank(check: InputCheck) -> tuple[int, bool, float]:
    """Return what sorts checks by how bad they are."""
    relative = check.error / check.tol
    return SEVERITY.index(check.verdict), math.isnan(relative), relative


def record_of(result: GradientCheck, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a result as plain values: of each gradient by the name of its input, or another."""
    found: dict[str, Any] = {}
    for position, check in enumerate(result.inputs):
        name = f"input {position}" if check is None else check.name
        values = check and {**dataclasses.asdict(check), "verdict": str(check.verdict)}
        found[names[position] if names else name] = values
    return {
        "verdict": str(result.verdict),
        "method": result.method,
        "why": result.why,
        "gradients": found,
    }
