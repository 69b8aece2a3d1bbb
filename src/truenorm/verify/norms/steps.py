"""A norm and its gradients in float64, step by step; any step can be replaced."""

from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from truenorm.verify.norms.norm import Norm
from truenorm.verify.operation import Case
from truenorm.verify.types import Array, Float64s

Step = Callable[["Steps"], Float64s]
Changes = Mapping[str, Step]
RECENT = 16
"""Cases whose unchanged steps are kept: hypotheses are compared with few cases at a time."""


class Steps:
    """The steps of a norm on one case: ``steps["dx"]`` computes dx and the steps before it.

    A replaced step may call `right`: the defined result, with all other steps as they are.
    Steps that depend on no replaced step are computed once for all changes of a case.
    """

    def __init__(self, norm: Norm, case: Case, changes: Changes) -> None:
        self.norm, self.case = norm, case
        self._changes = changes
        self._results: dict[str, Float64s] = {}
        self._needs: dict[str, set[str]] = {}  # by step: the step and the steps that it depends on
        self._open: list[str] = []  # steps that are being computed

    def __getitem__(self, name: str) -> Float64s:
        """Return the result of a step."""
        if name not in self._results:
            self._needs[name] = {name}
            self._open.append(name)
            with np.errstate(all="ignore"):
                self._results[name] = self._compute(name)
            self._open.pop()
        if self._open:
            self._needs[self._open[-1]] |= self._needs[name]
        return self._results[name]

    def _compute(self, name: str) -> Float64s:
        if name in self._changes:
            return np.asarray(self._changes[name](self))
        if self._changes:
            unchanged = _unchanged(self.norm, self.case)
            result = unchanged[name]
            if unchanged._needs[name].isdisjoint(self._changes):
                return result
        return np.asarray(DEFINITION[name](self))

    def right(self, name: str) -> Float64s:
        """Return the result of a step by its definition."""
        return DEFINITION[name](self)

    def is_changed(self, name: str) -> bool:
        """Return True if a step is replaced."""
        if self._open:
            self._needs[self._open[-1]].add(name)
        return name in self._changes

    def input(self, name: str, default: float) -> Float64s:
        """Return an input in float64, or the default if it is None."""
        array: Array | None = self.case.inputs.get(name)
        return np.full(1, default) if array is None else array.astype(np.float64)

    @property
    def size(self) -> int:
        """The number of elements of a row."""
        return self.case.shape[1]

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.case.shape[0]

    @property
    def y_type(self) -> str:
        """The type of y."""
        return self.norm.result_type or self.case.dtype

    def column(self, value: float = 0.0) -> Float64s:
        """Return one number for each row."""
        return np.full((self.count, 1), value)


@lru_cache(maxsize=RECENT)
def _unchanged(norm: Norm, case: Case) -> Steps:
    return Steps(norm, case, {})


def mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    return np.asarray(rows.mean(axis=1, keepdims=True))


def _mean_remainder(at: Steps) -> Float64s:
    """Return the error of the float64 mean; zero for a mean by another definition."""
    if not at.norm.centred or at.is_changed("mean"):
        return at.column()
    return mean(at["rows"] - at["mean"])


def _gain(at: Steps) -> Float64s:
    offset = float(at.norm.gain == "zero-centred")
    return at.input("gamma", 1.0 - offset) + offset


def _sum(at: Steps) -> Float64s:
    total: Array = at.case.x + at.case.residual
    return total.astype(np.float64)


DEFINITION: Changes = {
    "rows": lambda at: at.norm.normalized(at.case),
    "mean": lambda at: mean(at["rows"]) if at.norm.centred else at.column(),
    "mean_remainder": _mean_remainder,
    "c": lambda at: (at["rows"] - at["mean"]) - at["mean_remainder"],
    "w": lambda at: mean(at["c"] * at["c"]),
    "eps": lambda at: np.full(1, at.case.eps),
    "r": lambda at: 1 / np.sqrt(at["w"] + at["eps"]),
    "xhat": lambda at: at["c"] * at["r"],
    "gain": _gain,
    "beta": lambda at: at.input("beta", 0.0),
    "y": lambda at: at["xhat"] * at["gain"] + at["beta"],
    "sum": _sum,
    "dy": lambda at: at.input("dy", 0.0),
    "dsum": lambda at: at.input("dsum", 0.0),
    "g": lambda at: at["gain"] * at["dy"],
    "mean_g": lambda at: mean(at["g"]) if at.norm.centred else at.column(),
    "projection": lambda at: at["xhat"] * mean(at["g"] * at["xhat"]),
    "dnorm": lambda at: at["r"] * (at["g"] - at["mean_g"] - at["projection"]),
    "dx": lambda at: at["dnorm"] + at["dsum"],
    "dresidual": lambda at: at["dx"],
    "row_weights": lambda at: at.column(1.0),
    "terms": lambda at: at["dy"] * at["xhat"],
    "dgamma": lambda at: (at["terms"] * at["row_weights"]).sum(axis=0),
    "dbeta": lambda at: (at["dy"] * at["row_weights"]).sum(axis=0),
}
"""By name: each step as a function of earlier steps."""
