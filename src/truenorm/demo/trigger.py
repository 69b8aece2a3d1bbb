"""A row that triggers an instability, and what each algorithm returns for it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from truenorm.demo.algorithms import contestants, run
from truenorm.demo.errors import rounded_answer
from truenorm.demo.report import NamedRow
from truenorm.verify.operation import Case
from truenorm.verify.operations.layer_norm import layer_norm_case
from truenorm.verify.types import Float64s

__all__ = ["Trigger", "tried"]

SHOWN = 4
"""So many elements of a result are kept: what is longer is constant."""


@dataclass(frozen=True)
class Trigger:
    """A row, what it triggers, and the output in which that is seen; gamma is 1 and beta is 0.

    Attributes
    ----------
    name, dtype : str
    row : str
        x, as a person writes it.
    x : sequence of float
        The row; `times` of it.
    why, remedy : str
    output : str
    dy : sequence of float
    eps : float
    times : int
    digits : int
        As many as are worth looking at.
    """

    name: str
    dtype: str
    row: str
    x: Sequence[float]
    why: str
    remedy: str
    output: str = "y"
    dy: Sequence[float] = ()
    eps: float = 1e-5
    times: int = 1
    digits: int = 4

    def case(self) -> Case:
        """Return it as a case, with dy = 0 if none is given."""
        size = len(self.x)
        x, dy = (
            np.tile(np.array(row, self.dtype), (self.times, 1))
            for row in (self.x, self.dy or [0.0] * size)
        )
        gamma, beta = np.ones(size, self.dtype), np.zeros(size, self.dtype)
        return layer_norm_case(self.name, (x, gamma, beta, dy), self.eps, repeats=self.times)


def tried(trigger: Trigger) -> NamedRow:
    """Return what each algorithm returns, beside the exact answer."""
    case = trigger.case()
    returned = {}
    for name in contestants(trigger.dtype):
        result = getattr(run(name, case), trigger.output)
        if result is not None:
            returned[name] = _first(result.astype(np.float64))
    return NamedRow(
        trigger.name,
        trigger.dtype,
        trigger.row,
        trigger.output,
        trigger.digits,
        trigger.why,
        trigger.remedy,
        _first(rounded_answer(case, trigger.output)),
        returned,
    )


def _first(values: Float64s) -> list[float]:
    found: list[float] = values.ravel()[:SHOWN].tolist()
    return found
