"""Cases that differ in type, shape and seed, and what the plain ones are made of.

gamma, beta and dy are never ones: with those, half of the mistakes that are made in a backward
pass cancel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from truenorm.verify.cases.patterns import Pattern, filled
from truenorm.verify.operation import Case, Operation

__all__ = ["EPS", "EPSILONS", "PLAIN_X", "Family", "single"]


def single(value: float) -> float:
    """Return the float32 next to a number: an eps that every kernel can be given exactly."""
    return float(np.float32(value))


EPSILONS = tuple(map(single, (1e-5, 1e-6, 0.125, 1e-3)))
EPS = EPSILONS[0]
PLAIN_X: tuple[Pattern, ...] = (
    {"pattern": "normal"},
    {"pattern": "normal", "offset": 3.0, "scale": 2.0},
    {"pattern": "normal", "offset": -0.5, "scale": 0.25},
)
PLAIN: Mapping[str, Pattern] = {
    "gamma": "random",
    "beta": "normal",
    "dy": {"pattern": "normal", "offset": 0.5},
}
"""The inputs beside x, unless a family says otherwise; an operation takes those that it has."""


@dataclass(frozen=True)
class Family:
    """Cases with the same patterns: that of x, and those of other inputs where they matter."""

    slug: str
    x: Pattern
    kind: str
    why: str
    others: Mapping[str, Pattern] = field(default_factory=dict)
    eps: float = EPS
    repeats: int = 1

    def case(self, operation: Operation, dtype: str, rows: int, size: int, seed: int = 0) -> Case:
        """Return the case of a shape; rows counts those that are not repeated."""
        name = f"{dtype}-{self.slug}-{rows * self.repeats}x{size}" + (f"-{seed}" if seed else "")
        x = filled(self.x, dtype, (rows, size), f"{name} x")
        patterns = {**PLAIN, **self.others}
        inputs = {"x": x}
        for each in operation.inputs:
            if each.name != "x":
                shape = (size,) if each.role == "parameter" else (rows, size)
                inputs[each.name] = filled(
                    patterns[each.name], dtype, shape, f"{name} {each.name}", x=x
                )
        case = Case(
            operation,
            name,
            dtype,
            inputs,
            self.eps if operation.takes_eps else 0.0,
            self.kind,
            self.slug,
            self.why,
        )
        return case.tiled(self.repeats)
