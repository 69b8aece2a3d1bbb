"""What a gradient check found."""

import math
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["GradientCheck", "InputCheck", "Verdict"]


class Verdict(StrEnum):
    """What can be said of a backward pass. INCONCLUSIVE: the method cannot see that closely."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class InputCheck:
    """How the gradient with respect to one input compares with derivatives of forward.

    Attributes
    ----------
    error : float
        The largest difference between the two, relative to the size of the gradient.
    floor : float
        How much of that the method itself can account for, in the same units.
    checked, size : int
        How many elements were checked one by one, of how many. None of them if random projections
        were checked, which every element takes part in.
    worst : tuple of int or None
        The index of the element with the largest error; None for projections.
    analytic, numeric : float
        That element, or projection, as backward gave it and as the method found it.
    """

    error: float
    floor: float
    checked: int
    size: int
    worst: tuple[int, ...] | None
    analytic: float
    numeric: float

    def verdict(self, tol: float) -> Verdict:
        """Tell what follows for a tolerance; an error of NaN fails."""
        sees_nothing = self.floor >= 1  # as large as the gradient
        if math.isnan(self.error) or (not sees_nothing and not self.error <= tol + self.floor):
            return Verdict.FAIL
        if self.error <= tol and self.floor <= tol:
            return Verdict.PASS
        return Verdict.INCONCLUSIVE

    def __str__(self) -> str:
        """Error, floor and coverage, and the worst element with both its values."""
        if not self.size:
            return "nothing to check: it has no elements"
        what = f"{self.checked} of {self.size} elements" if self.checked else "random projections"
        where = "" if self.worst is None else f" at {list(self.worst)}"
        return (
            f"error {self.error:.1e}, floor {self.floor:.1e} ({what}; worst{where}: "
            f"backward {self.analytic:.12g}, forward {self.numeric:.12g})"
        )


@dataclass(frozen=True)
class GradientCheck:
    """The outcome of `truenorm.gradcheck`; true for the verdict PASS only.

    Attributes
    ----------
    inputs : tuple of InputCheck or None
        One for each input; None where backward returned None.
    tol : float
        The relative error that was allowed.
    method : str
        How derivatives of forward were found: "jet", "complex" or "central".
    why : str
        Why that method, and what kept others from being used.
    """

    inputs: tuple[InputCheck | None, ...]
    tol: float
    method: str
    why: str

    @property
    def verdict(self) -> Verdict:
        """PASS if every gradient is within the tolerance and the method could see that."""
        found = {check.verdict(self.tol) for check in self.inputs if check is not None}
        for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS):
            if verdict in found:
                return verdict
        return Verdict.INCONCLUSIVE  # backward returned no gradient at all

    @property
    def worst_input(self) -> int | None:
        """The number of the input with the largest error."""
        errors = {k: check.error for k, check in enumerate(self.inputs) if check is not None}
        if not errors:
            return None
        return max(errors, key=lambda k: (math.isnan(errors[k]), errors[k]))

    @property
    def error(self) -> float:
        """The largest error of all inputs."""
        return math.nan if self._worst_check is None else self._worst_check.error

    @property
    def floor(self) -> float:
        """The method's own noise, where it is largest."""
        return max((check.floor for check in self.inputs if check is not None), default=math.inf)

    @property
    def worst(self) -> tuple[int, ...] | None:
        """The index of the worst element within `worst_input`; None for projections."""
        return None if self._worst_check is None else self._worst_check.worst

    @property
    def _worst_check(self) -> InputCheck | None:
        return None if self.worst_input is None else self.inputs[self.worst_input]

    def __bool__(self) -> bool:
        """Return whether the verdict is PASS, so that a test can assert the result itself."""
        return self.verdict is Verdict.PASS

    def __str__(self) -> str:
        """Verdict and method, and one line for each input."""
        lines = [f"{self.verdict}: gradient check by {self.method}, tolerance {self.tol:.0e}"]
        for position, found in enumerate(self.inputs):
            text = found or "skipped: backward returned None"
            mark = "" if found is None else f"{found.verdict(self.tol)}, "
            lines.append(f"  input {position}: {mark}{text}")
        if self.verdict is Verdict.INCONCLUSIVE and math.inf > self.floor > self.tol:
            lines.append(
                "  The floor is above the tolerance: forward itself is too noisy here for this "
                "method. Try method='jet', or a forward that loses fewer digits."
            )
        lines.append(f"  {self.why}")
        return "\n".join(lines)
