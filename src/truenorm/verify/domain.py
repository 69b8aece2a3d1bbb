"""What a subject claims to be right for: the rows that its grade is about."""

import math
from dataclasses import dataclass

__all__ = ["EVERYWHERE", "Domain"]


@dataclass(frozen=True)
class Domain:
    r"""Rows without large numbers, or without a large mean.

    A float32 kernel is not expected to survive 1e30, whose square float32 does not have. What is
    beyond is run all the same, and its outcome is a verdict of its own, not a grade.

    Attributes
    ----------
    largest : float
        The largest \|x\|.
    kappa : float
        The largest condition number of a row.
    """

    largest: float = math.inf
    kappa: float = math.inf

    def __post_init__(self) -> None:
        """Refuse what holds no row."""
        for name in ("largest", "kappa"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above zero")

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out."""
        return self == EVERYWHERE

    def __str__(self) -> str:
        """Say it in words."""
        limits = {"|x|": self.largest, "kappa": self.kappa}
        said = [f"{name} up to {limit:g}" for name, limit in limits.items() if limit < math.inf]
        return " and ".join(said) or "all rows"


EVERYWHERE = Domain()
