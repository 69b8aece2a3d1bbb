"""Recipes of grouped norms: which steps are rounded to T, the type of x, on the way to y.

As in `truenorm.verify.operations.recipes`, an element is undecided where the errors of float32
arithmetic may change one of its roundings.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from truenorm.verify.formula.rounding import float32_noise, operation_error, round_decided
from truenorm.verify.operation import Case, RecipeResult
from truenorm.verify.operations.grouped.answers import Formulas
from truenorm.verify.types import Float64s, unit_roundoff

if TYPE_CHECKING:
    from truenorm.verify.operations.grouped.norm import GroupedNorm

GATE_ERROR = 8 * unit_roundoff("float32")
"""The relative error of a sigmoid in float32, for a condition number of 1."""


def rounded_steps(norm: "GroupedNorm") -> dict[str, tuple[str, ...]]:
    """Return the steps that each recipe rounds."""
    table: dict[str, tuple[str, ...]] = {"late": (), "early": ("xhat",)}
    after = bool(norm.gate) and not norm.gate_first
    if after or norm.modulate:
        table |= {"norm-rounded": ("n",), "early, norm-rounded": ("xhat", "n")}
    if norm.gate_first:
        table |= {"gate-rounded": ("u",), "both-rounded": ("s", "u")}
    elif norm.gates_by_z:
        table |= {"gate-rounded": ("s",), "both-rounded": ("n", "s")}
    if norm.modulate or norm.gain == "zero-centred":
        table["gain-rounded"] = ("gain", "factor")
    steps = ("s", "u", "xhat", "gain", "product", "n", "factor", "modulated", "m")
    return {**table, "stepwise": steps}


def recipe_names(norm: "GroupedNorm") -> dict[str, str]:
    """Return the recipes that a subject may claim, with what they round."""
    gate = "x*s(z)" if norm.gate_first else "s(z)"
    texts = {
        "late": "one rounding, at the end",
        "early": "xhat is rounded to the type of x",
        "norm-rounded": "xhat*gain is rounded to the type of x",
        "early, norm-rounded": "xhat and xhat*gain are rounded to the type of x",
        "gate-rounded": f"{gate} is rounded to the type of x",
        "both-rounded": f"{'s(z)' if norm.gate_first else 'xhat*gain'} and {gate} are rounded",
        "gain-rounded": f"{'1 + scale' if norm.modulate else '1 + gamma'} is rounded",
        "stepwise": "every step after the statistics is rounded to the type of x",
    }
    return {name: texts[name] for name in rounded_steps(norm)}


def recipe_results(norm: "GroupedNorm", case: Case) -> dict[str, RecipeResult]:
    """Return y of a case by every recipe."""
    with np.errstate(all="ignore"):
        return {
            name: _Computation(norm, case, steps).result()
            for name, steps in rounded_steps(norm).items()
        }


@dataclass(frozen=True)
class _Noisy:
    """Numbers, and how far float32 arithmetic may have moved them."""

    values: Float64s
    noise: Float64s

    def __mul__(self, other: "_Noisy") -> "_Noisy":
        values = self.values * other.values
        moved = self.noise * np.abs(other.values) + other.noise * np.abs(self.values)
        return _Noisy(values, moved + operation_error(values))

    def __add__(self, other: "_Noisy") -> "_Noisy":
        values = self.values + other.values
        return _Noisy(values, self.noise + other.noise + operation_error(values))


def _exact(values: Float64s) -> _Noisy:
    return _Noisy(values, np.zeros(1))


class _Computation(Formulas):
    """y by unit in float64, rounded at some steps; tracks which elements float32 decides."""

    def __init__(self, norm: "GroupedNorm", case: Case, steps: tuple[str, ...]) -> None:
        super().__init__(norm, case)
        self.steps = steps
        self.decided = np.ones((case.shape[0] * self.geometry.count, self.size), bool)

    def result(self) -> RecipeResult:
        """Return y and the elements that are decided."""
        kind = self.norm.result_type or self.case.dtype
        y = self._output()
        values = self._round(y, kind)
        rows = self.geometry.rows_of
        return RecipeResult(rows(np.broadcast_to(values, self.decided.shape)), rows(self.decided))

    def _output(self) -> _Noisy:
        norm = self.norm
        u = _exact(self.rows("x"))
        if norm.gates_by_z:
            gate = self._at("s", self._silu_or_sigmoid(_exact(self.rows("z"))))
            u = self._at("u", u * gate) if norm.gate_first else u
        n = self._at("xhat", self._normalized(u))
        if norm.parameters:
            gain = _exact(self.columns("gamma", 1.0 if norm.gain != "zero-centred" else 0.0))
            if norm.gain == "zero-centred":
                gain = self._at("gain", gain + _exact(np.ones(1)))
            n = self._at("product", n * gain)
            n = n + _exact(self.columns("beta", 0.0)) if "beta" in norm.parameters else n
        m = n
        if norm.modulate or (norm.gate and not norm.gate_first):
            m = n = self._at("n", n)
        if norm.modulate:
            factor = _exact(np.ones(1)) + _exact(self.columns("scale", 0.0))
            m = self._at("modulated", n * self._at("factor", factor))
            m = m + _exact(self.columns("shift", 0.0))
        if not norm.gate or norm.gate_first:
            return m
        m = self._at("m", m)
        return self._silu_or_sigmoid(m) if norm.gate == "self" else m * gate

    def _normalized(self, u: _Noisy) -> _Noisy:
        """Return xhat; sums have the errors of float32 sums."""
        error = float32_noise(self.size)
        c = u
        if self.norm.centred:
            mean = u.values.mean(axis=1, keepdims=True)
            moved = (error * np.abs(u.values) + u.noise).mean(axis=1, keepdims=True)
            c = u + _Noisy(-mean, moved)
        part = c.values[:, : self.counted]
        noise = np.broadcast_to(c.noise, c.values.shape)[:, : self.counted]
        count = 1 if self.norm.divisor == "sum" else self.counted
        w = (part**2).sum(axis=1, keepdims=True) / count
        moved = error * w + 2 * (np.abs(part) * noise).sum(axis=1, keepdims=True) / count
        w = w + self.case.eps
        r = 1 / np.sqrt(w)
        # Two divisions and a root: more than an operation, and far less than a sum.
        return c * _Noisy(r, moved * r / (2 * w) + 4 * operation_error(r))

    def _silu_or_sigmoid(self, z: _Noisy) -> _Noisy:
        sigma = 1 / (1 + np.exp(-z.values))
        size = np.abs(z.values)
        silu = self.norm.activation == "silu"
        values = z.values * sigma if silu else sigma
        slope = sigma * (1 + size * (1 - sigma)) if silu else sigma * (1 - sigma)
        noise = GATE_ERROR * np.abs(values) * (1 + size * (1 - sigma)) + z.noise * slope
        return _Noisy(values, noise)

    def _at(self, name: str, number: _Noisy) -> _Noisy:
        """Return the result of a step, rounded if the recipe does so."""
        if name not in self.steps:
            return number
        return _exact(self._round(number, self.case.dtype))

    def _round(self, number: _Noisy, kind: str) -> Float64s:
        rounded, decided = round_decided(number.values, number.noise, kind)
        self.decided &= decided
        return rounded
