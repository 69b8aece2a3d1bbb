"""The result of a gradient check."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

UNLOCATED = "Random projections locate no element: call gradcheck on a part, such as one row."
NOISY = "The floor is above the tolerance: forward loses too many digits here for this method."
LOSSY = "Rounding errors of backward are above the tolerance: it loses too many digits here."
NO_DIGITS = 0.01
"""Relative errors above this leave no digits worth a message."""
MISSING = (
    "backward returned None, but forward depends on {name}: return its gradient, or bind {name} "
    "inside forward and backward"
)


class Verdict(StrEnum):
    """The verdict on a backward pass; INCONCLUSIVE if the method is not accurate enough."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"


SEVERITY = (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL)


@dataclass(frozen=True)
class InputCheck:
    """The comparison of the gradient with respect to one input with derivatives of forward.

    Attributes
    ----------
    name : str
        The name of the input.
    tol : float
        The allowed relative error. It is the largest of all elements, where rounding errors allow
        more for some of them.
    error : float
        The largest difference, relative to the size of the gradient.
    floor : float
        The part of that difference that the method itself may cause, in the same units. If all
        elements pass, it is the largest of all.
    excess : float
        The part of that difference that the method cannot cause.
    checked, size : int
        The number of elements that were checked one by one, and the number of all elements. 0 were
        checked if random projections were, which include every element.
    worst : tuple of int or None
        The index of the element with the largest error; None for projections.
    analytic, numeric : float
        That element, or projection, by backward and by the method.
    why : str
        Explains a floor that is more than rounding.
    rounding : float
        The part of the error at that element that rounding in backward may cause, in the same
        units. Measured only if the error is above the tolerance, and 0 otherwise.
    missing : bool
        True if backward returned None; the derivative must then be zero.
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
    rounding: float = 0.0
    missing: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict on this gradient; an error of NaN fails."""
        if math.isnan(self.error) or self.excess > self.tol:
            return Verdict.FAIL
        if all(part <= self.tol for part in (self.error, self.floor, self.rounding)):
            return Verdict.PASS
        return Verdict.INCONCLUSIVE

    def __str__(self) -> str:
        """Return error, floor and coverage, and the worst element with both values."""
        if not self.size:
            return "nothing to check: it has no elements"
        if self.missing and self.verdict is Verdict.PASS:
            return "backward returned None, and forward does not depend on it"
        if self.missing and self.verdict is Verdict.FAIL:
            return f"{MISSING.format(name=self.name)} (derivative {self.numeric:.6g})"
        scope = f"{self.checked} of {self.size} elements" if self.checked else "random projections"
        return f"{self._numbers} ({scope}; worst{self._where}: {self._values}){self._digits}"

    @property
    def explanation(self) -> str:
        """Why the verdict is not PASS, if there is more to it than a wrong gradient."""
        if self.verdict is not Verdict.PASS and self.why:
            return self.why
        if self.verdict is Verdict.FAIL and self.size and not (self.checked or self.missing):
            return UNLOCATED
        if self.verdict is not Verdict.INCONCLUSIVE:
            return ""
        return NOISY if self.floor > self.tol else LOSSY if self.rounding > self.tol else ""

    @property
    def summary(self) -> str:
        """The verdict and the worst element, in a few words."""
        if self.missing and self.verdict is Verdict.FAIL:
            return f"{self.verdict}: {MISSING.format(name=self.name)}"
        return (
            f"{self.verdict}: gradient of {self.name}{self._where}: {self._values} "
            f"({self._numbers})"
        )

    @property
    def _numbers(self) -> str:
        """The numbers that decide; the rounding of backward where it is above the floor."""
        rounding = f", rounding {self.rounding:.1e}" if self.rounding > self.floor else ""
        return (
            f"error {self.error:.1e}, floor {self.floor:.1e}{rounding}, tolerance {self.tol:.2g}"
        )

    @property
    def _where(self) -> str:
        return "" if self.worst is None else f" at {list(self.worst)}"

    @property
    def _values(self) -> str:
        return f"backward {self.analytic:.12g}, forward {self.numeric:.12g}"

    @property
    def _digits(self) -> str:
        """The number of digits that agree, if rounding errors of backward relax the tolerance."""
        explained = self.verdict is not Verdict.FAIL and self.tol <= self.rounding < NO_DIGITS
        if not (explained and 0 < self.error < NO_DIGITS):
            return ""
        agrees, allows = map(_digits, (self.error, self.rounding))
        return f"; agrees to {agrees} digits, rounding of backward allows {allows}"


def _digits(relative: float) -> int:
    return math.floor(-math.log10(relative))


NO_INPUT = InputCheck("", tol=math.nan, error=math.nan)
"""Stands for the worst input of a forward without inputs."""


@dataclass(frozen=True, repr=False)
class GradientCheck:
    """The outcome of `truenorm.gradcheck`; true for the verdict PASS only.

    ``repr()`` is one line, so that a failed ``assert tn.gradcheck(...)`` shows the error;
    ``str()`` is a short report.

    Attributes
    ----------
    inputs : tuple of InputCheck
        One for each input.
    method : str
        The method that differentiated forward: "jet", "complex" or "central"; empty if forward
        has no derivative to compare with.
    why : str
        Why this method was used, and others were not.
    advice : str
        What to try next if the verdict is INCONCLUSIVE.
    """

    inputs: tuple[InputCheck, ...]
    method: str
    why: str
    advice: str = ""

    @property
    def verdict(self) -> Verdict:
        """PASS if every gradient is within its tolerance, and every floor, too."""
        verdicts = (check.verdict for check in self.inputs)
        return max(verdicts, key=SEVERITY.index, default=Verdict.INCONCLUSIVE)

    @property
    def worst_input(self) -> int | None:
        """The index of the input with the worst verdict, and then the largest error over `tol`."""
        return max(range(len(self.inputs)), key=lambda k: _rank(self.inputs[k]), default=None)

    @property
    def error(self) -> float:
        """The error of the worst input."""
        return self._worst_check.error

    @property
    def tol(self) -> float:
        """The tolerance of the worst input; it depends on the type of the gradient."""
        return self._worst_check.tol

    @property
    def floor(self) -> float:
        """The largest noise of the method."""
        return max((check.floor for check in self.inputs), default=math.inf)

    @property
    def worst(self) -> tuple[int, ...] | None:
        """The index of the worst element within `worst_input`; None for projections."""
        return self._worst_check.worst

    @property
    def _worst_check(self) -> InputCheck:
        return NO_INPUT if self.worst_input is None else self.inputs[self.worst_input]

    def __bool__(self) -> bool:
        """Return True if the verdict is PASS, so that a test can assert the result itself."""
        return self.verdict is Verdict.PASS

    def __repr__(self) -> str:
        """Return the worst input in one line."""
        if not self.method:
            return f"<GradientCheck, {self.verdict}: {self.why}>"
        return f"<GradientCheck by {self.method}, {self._worst_check.summary}>"

    def __str__(self) -> str:
        """Return verdict and method, and one line for each input."""
        if not self.method:
            return f"{self.verdict}: no gradient was checked\n  {self.why}"
        lines = [f"{self.verdict}: gradient check by {self.method}"]
        for check in self.inputs:
            lines.append(f"  {check.name}: {check.verdict}, {check}")
            if check.explanation:
                lines.append(f"    {check.explanation}")
        lines.append(f"  {self.why}")
        if self.advice and self.verdict is Verdict.INCONCLUSIVE:
            lines.append(f"  {self.advice}")
        return "\n".join(lines)


def _rank(check: InputCheck) -> tuple[int, bool, float]:
    """Return a sort key that puts the worst check last."""
    relative = check.error / check.tol
    return SEVERITY.index(check.verdict), math.isnan(relative), relative


def record_of(result: GradientCheck, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return a result as built-in types; `names` replaces the names of the inputs."""
    names = names or [check.name for check in result.inputs]
    gradients = {
        name: {**dataclasses.asdict(check), "verdict": str(check.verdict)}
        for name, check in zip(names, result.inputs, strict=True)
    }
    return {
        "verdict": str(result.verdict),
        "method": result.method,
        "why": result.why,
        "advice": result.advice,
        "gradients": gradients,
    }
