"""What a norm is, as far as its cases, answers and scales depend on it."""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from truenorm.verify.operation import Case, Input
from truenorm.verify.types import FORMATS, Array, Float64s, unit_roundoff


class Definition(Protocol):
    """The part of `truenorm.verify.operations.norms.Norm` that others look at."""

    centred: bool
    adds: bool
    gain: str
    sum: str
    parameters: tuple[str, ...]
    parameter_type: str
    result_type: str
    inputs: tuple[Input, ...]

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""


IN_NO_FILE = ("ranks", "strides", "padded-rows", "layouts-of-gradients", "float32-parameters")


def extensions_of(norm: Definition) -> dict[str, str]:
    """Return them, and what each means."""
    absent = {
        f"no-{name}": f"{name} is None, and nobody looks at d{name}" for name in norm.parameters
    }
    rows = " and ".join(each.name for each in norm.inputs if each.role != "parameter")
    arriving = "dy and dsum lie" if norm.adds else "dy lies"
    sums = " and ".join(f"d{name}" for name in norm.parameters)
    are = "is" if len(norm.parameters) == 1 else "are"
    found = {
        **absent,
        "ranks": "x has one axis, or three",
        "strides": f"{rows} are views with gaps along the last axis",
        "padded-rows": f"{rows} are views with gaps between rows, as slices of a wider array",
        "layouts-of-gradients": f"{arriving} in memory otherwise than x, or can only be read",
        "idle-rows": f"rows whose dy is zero change no bit of {sums}",
        "zero-eps": f"eps is 0, and no row is {'constant' if norm.centred else 'zero'}",
        "tiny-eps": "eps is a number that float32 does not have",
        "empty": "x has no rows",
    }
    if not norm.parameter_type:
        all_of_them = " and ".join(norm.parameters)
        found["float32-parameters"] = f"{all_of_them} {are} float32 whatever x is"
    return found


def not_for_commands(norm: Definition) -> frozenset[str]:
    """Return those that the files of a command cannot hold."""
    return frozenset({*(f"no-{each}" for each in norm.parameters), *IN_NO_FILE})


def _root_mean_square(rows: Float64s) -> Float64s:
    """Return one number for each row, as a column; squares do not overflow."""
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    safe = np.where(largest > 0, largest, 1.0)
    mean = ((rows / safe) ** 2).mean(axis=1, keepdims=True)
    root: Float64s = largest * np.sqrt(mean)
    return root


def _wide(array: Array | None, size: int, absent: float) -> Float64s:
    """Return sizes in float64, with 0 for what is not finite: no scale comes from there."""
    if array is None:
        return np.full(size, absent)
    wide: Float64s = np.abs(array.astype(np.float64))
    return np.where(np.isfinite(wide), wide, 0.0)


class NormScales:
    """The natural scales of one case: see `truenorm.verify.operation.Scales`."""

    def __init__(self, case: Case, exact: Mapping[str, Float64s], norm: Definition) -> None:
        self._centred = centred = norm.centred
        self._xhat, self._r = np.abs(exact["xhat"]), exact["r"]
        rows, size = self._shape = case.shape
        once = rows // case.repeats
        # A rounding error of the smallest number, as if it were one of relative size u.
        self._least = 2.0 ** FORMATS[case.dtype].quantum / unit_roundoff(case.dtype)
        x = _wide(norm.normalized(case)[:once], size, 0.0)
        self._dy = _wide(case.dy[:once], size, 0.0)
        arriving = case.inputs.get("dsum")
        self._dsum = 0.0 if arriving is None else _wide(arriving[:once], size, 0.0)
        self._gamma = _wide(case.gamma, size, 1.0)
        if norm.gain == "zero-centred" and case.gamma is not None:
            self._gamma = _wide(1.0 + case.gamma.astype(np.float64), size, 1.0)
        self._beta = _wide(case.inputs.get("beta"), size, 0.0)
        self._rho = _root_mean_square(self._xhat) + self._least * self._r
        # What the rounding of a mean moves xhat by; without one, what that of x does.
        self._moves = self._rho if centred else self._least * self._r
        self.kappa = _root_mean_square(x) * self._r if centred else np.ones_like(self._r)

    def terms(self, output: str) -> int:
        """Return how many numbers are added up: along a row, and for columns over rows."""
        rows, size = self._shape
        along = dict.fromkeys(("y", "dx", "dresidual"), size)
        return {**along, "sum": 1, "dgamma": rows + size, "dbeta": rows}[output]

    def of(self, output: str, power: int = 0) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa."""
        scale: Float64s
        if output == "dbeta":
            scale = self._dy.sum(axis=0)
            return scale
        if output == "sum":  # one rounding, which an ulp covers
            return np.zeros_like(self._xhat)
        power = power if self._centred else 0
        growth = (1 + self.kappa) ** power
        sizes = (self._xhat + self._moves) * growth + (self.kappa**power if power else 0.0)
        if output == "dgamma":
            scale = (self._dy * sizes + self._least).sum(axis=0)
            return scale
        if output == "y":
            scale = self._gamma * sizes + (self._beta + self._least)
            return scale
        g = self._gamma * self._dy + self._least
        along = _root_mean_square(g) * self._rho * (self._moves + self._xhat)
        of_mean = g.mean(axis=1, keepdims=True) if self._centred else 0.0
        scale = self._r * (g + of_mean + along) * growth + self._dsum
        return scale
