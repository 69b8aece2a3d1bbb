"""What a gradient check found."""

from dataclasses import dataclass

__all__ = ["GradientCheck", "InputCheck"]


@dataclass(frozen=True)
class InputCheck:
    """How the gradient with respect to one input compares with differences.

    Attributes
    ----------
    error : float
        The largest difference between the two, divided by the largest gradient seen.
    checked, size : int
        How many elements were checked, of how many.
    worst : tuple of int
        The index of the element with the largest difference; empty if nothing was checked.
    analytic, numeric : float
        That element's gradient as backward gave it and as differences of forward gave it.
    """

    error: float
    checked: int
    size: int
    worst: tuple[int, ...]
    analytic: float
    numeric: float

    def __str__(self) -> str:
        """Error and coverage, and the worst element with both its values."""
        if not self.checked:
            return "nothing to check: it has no elements"
        return (
            f"relative error {self.error:.1e} ({self.checked} of {self.size} elements; worst at "
            f"{list(self.worst)}: backward {self.analytic:.10g}, differences {self.numeric:.10g})"
        )


@dataclass(frozen=True)
class GradientCheck:
    """The outcome of `truenorm.gradcheck`; true if every error is within the tolerance.

    Attributes
    ----------
    inputs : tuple of InputCheck or None
        One for each input; None where backward returned None.
    tol : float
        The relative error that was allowed.
    """

    inputs: tuple[InputCheck | None, ...]
    tol: float

    @property
    def passed(self) -> bool:
        """Whether no error exceeds the tolerance; an error of NaN does."""
        return all(found is None or found.error <= self.tol for found in self.inputs)

    def __bool__(self) -> bool:
        """Return `passed`, so that a test can assert the result itself."""
        return self.passed

    def __str__(self) -> str:
        """One line for each input under the verdict."""
        lines = [f"gradient check {'passed' if self else 'FAILED'} (tolerance {self.tol:.0e})"]
        for position, found in enumerate(self.inputs):
            lines.append(f"  input {position}: {found or 'skipped: backward returned None'}")
        return "\n".join(lines)
