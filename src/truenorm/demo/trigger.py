"""A row that triggers an instability, and what each algorithm returns for it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from truenorm.demo.algorithms import contestants, run
from truenorm.demo.errors import rounded_answer
from truenorm.demo.report import Instability, NamedRow
from truenorm.verify.inputs import Case
from truenorm.verify.types import Float64s

__all__ = ["Trigger", "tried"]

SHOWN = 4
"""So many elements of a result are kept: what is longer is constant."""


@dataclass(frozen=True, kw_only=True)
class Trigger(Instability):
    """An instability and its row x, `times` of it; gamma is 1, beta 0, and dy 0 if not given."""

    x: Sequence[float]
    dy: Sequence[float] = ()
    eps: float = 1e-5
    times: int = 1

    def case(self) -> Case:
        """Return it as a case."""
        size = len(self.x)
        x, dy = (
            np.tile(np.array(row, self.dtype), (self.times, 1))
            for row in (self.x, self.dy or [0.0] * size)
        )
        gamma, beta = np.ones(size, self.dtype), np.zeros(size, self.dtype)
        return Case(self.name, self.dtype, x, gamma, beta, dy, self.eps, repeats=self.times)


def tried(trigger: Trigger) -> NamedRow:
    """Return what each algorithm returns, beside the exact answer."""
    case = trigger.case()
    results = {name: run(name, case) for name in contestants(trigger.dtype)}
    outputs = {name: getattr(each, trigger.output) for name, each in results.items()}
    return NamedRow(
        **{each.name: getattr(trigger, each.name) for each in fields(Instability)},
        exact=_first(rounded_answer(case, trigger.output)),
        returned={
            name: _first(output.astype(np.float64))
            for name, output in outputs.items()
            if output is not None
        },
    )


def _first(values: Float64s) -> list[float]:
    found: list[float] = values.ravel()[:SHOWN].tolist()
    return found
