"""A norm and its gradients in float64, step by step, any of which may be done otherwise."""

from collections.abc import Callable, Mapping

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.operations.definition import Definition
from truenorm.verify.types import FORMATS, Array, Float64s, dtype_of, ulps_of

Step = Callable[["Steps"], Float64s]
Changes = Mapping[str, Step]
MANY = 2**13


class Steps:
    """The steps of a norm on one case: ``steps["dx"]`` asks for those that it needs.

    A step that is done otherwise may ask for `right`, what it would be by the definition with
    all other steps as they are.
    """

    def __init__(self, norm: Definition, case: Case, changes: Changes) -> None:
        self.norm, self.case = norm, case
        self._changes = changes
        self._known: dict[str, Float64s] = {}

    def __getitem__(self, name: str) -> Float64s:
        """Return the result of a step."""
        if name not in self._known:
            with np.errstate(all="ignore"):
                self._known[name] = np.asarray(self._changes.get(name, DEFINITION[name])(self))
        return self._known[name]

    def right(self, name: str) -> Float64s:
        """Return the result of a step as it is defined."""
        return DEFINITION[name](self)

    def changes(self, name: str) -> bool:
        """Tell whether a step is done otherwise."""
        return name in self._changes

    def given(self, name: str, absent: float) -> Float64s:
        """Return an input in float64."""
        array: Array | None = self.case.inputs.get(name)
        return np.full(1, absent) if array is None else array.astype(np.float64)

    @property
    def size(self) -> int:
        """The number of elements of a row."""
        return self.case.shape[1]

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.case.shape[0]

    @property
    def type_of_y(self) -> str:
        """The type of y."""
        return self.norm.result_type or self.case.dtype


def mean(rows: Float64s) -> Float64s:
    """Return the mean of each row, as a column."""
    return np.asarray(rows.mean(axis=1, keepdims=True))


def rounded(values: Float64s, kind: str) -> Float64s:
    """Round to a type; what is beyond its range is infinite."""
    with np.errstate(all="ignore"):
        finite = np.where(np.isfinite(values), values, 0.0)
        ulps = ulps_of(finite, kind)
        near = np.rint(finite / ulps) * ulps
        beyond = np.abs(near) >= np.ldexp(1.0, FORMATS[kind].limit)
        near = np.where(beyond, np.copysign(np.inf, near), near)
    return np.where(np.isfinite(values), near, values)


def added_up(terms: Float64s, kind: str, axis: int) -> Float64s:
    """Return sums of rounded terms, each rounded to a type, from the first to the last."""
    narrow = terms.astype(dtype_of(kind))
    sums = np.add.accumulate(narrow, axis=axis, dtype=narrow.dtype)
    last: Float64s = np.take(sums, -1, axis=axis).astype(np.float64)
    return last


def added_into(terms: Float64s, kind: str) -> Float64s:
    """Return sums over rows that are rounded to a type after each, while the terms are not.

    Of very many rows it is not known: that would take too long.
    """
    total: Array = np.zeros(terms.shape[1], dtype_of(kind))
    if len(terms) > MANY:
        return np.full(terms.shape[1], np.nan)
    for row in terms:
        total = (total.astype(np.float64) + row).astype(total.dtype)
    return total.astype(np.float64)


def _mean(at: Steps) -> Float64s:
    return mean(at["rows"]) if at.norm.centred else np.zeros((at.count, 1))


def _rest(at: Steps) -> Float64s:
    """Return what float64 lost of a mean: of another one than the definition's, nothing."""
    if not at.norm.centred or at.changes("mean"):
        return np.zeros((at.count, 1))
    return mean(at["rows"] - at["mean"])


def _gain(at: Steps) -> Float64s:
    offset = float(at.norm.gain == "zero-centred")
    return at.given("gamma", 1.0 - offset) + offset


def _sum(at: Steps) -> Float64s:
    total: Array = at.case.x + at.case.residual
    return total.astype(np.float64)


def _mean_g(at: Steps) -> Float64s:
    return mean(at["g"]) if at.norm.centred else np.zeros((at.count, 1))


DEFINITION: Changes = {
    "rows": lambda at: at.norm.normalized(at.case),
    "mean": _mean,
    "rest": _rest,
    "c": lambda at: (at["rows"] - at["mean"]) - at["rest"],
    "w": lambda at: mean(at["c"] * at["c"]),
    "eps": lambda at: np.full(1, at.case.eps),
    "r": lambda at: 1 / np.sqrt(at["w"] + at["eps"]),
    "xhat": lambda at: at["c"] * at["r"],
    "gain": _gain,
    "beta": lambda at: at.given("beta", 0.0),
    "y": lambda at: at["xhat"] * at["gain"] + at["beta"],
    "sum": _sum,
    "dy": lambda at: at.given("dy", 0.0),
    "dsum": lambda at: at.given("dsum", 0.0),
    "g": lambda at: at["gain"] * at["dy"],
    "mean_g": _mean_g,
    "along": lambda at: at["xhat"] * mean(at["g"] * at["xhat"]),
    "dnorm": lambda at: at["r"] * (at["g"] - at["mean_g"] - at["along"]),
    "dx": lambda at: at["dnorm"] + at["dsum"],
    "dresidual": lambda at: at["dx"],
    "share": lambda at: np.ones((at.count, 1)),
    "terms": lambda at: at["dy"] * at["xhat"],
    "dgamma": lambda at: (at["terms"] * at["share"]).sum(axis=0),
    "dbeta": lambda at: (at["dy"] * at["share"]).sum(axis=0),
}
"""Every step by its name: of the others it takes what it needs."""
