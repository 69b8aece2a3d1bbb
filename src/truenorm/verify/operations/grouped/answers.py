"""The formulas of grouped norms in float64, for recipes and hypotheses: see `formulas`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.operation import Case
from truenorm.verify.operations.grouped.formulas import SATURATING
from truenorm.verify.operations.grouped.geometry import Geometry
from truenorm.verify.types import Array, Float64s

if TYPE_CHECKING:
    from truenorm.verify.operations.grouped.norm import GroupedNorm

Units = NDArray[np.intp]
Reshape = Callable[[Array], Array]


@dataclass(frozen=True)
class Floats:
    """Float64 numbers, rounded in each operation."""

    values: Float64s

    @classmethod
    def of(cls, values: Float64s) -> "Floats":
        """Return given numbers."""
        return cls(values)

    def __add__(self, other: "Floats") -> "Floats":
        """Add."""
        return Floats(self.values + other.values)

    def __sub__(self, other: "Floats") -> "Floats":
        """Subtract."""
        return Floats(self.values - other.values)

    def __mul__(self, other: "Floats") -> "Floats":
        """Multiply."""
        return Floats(self.values * other.values)

    def sum(self, axis: int) -> "Floats":
        """Sum along an axis, which stays."""
        return Floats(self.values.sum(axis=axis, keepdims=True))

    def over(self, count: int) -> "Floats":
        """Divide by an integer."""
        return Floats(self.values / count)

    def inverse_root(self) -> "Floats":
        """Return 1/sqrt."""
        return Floats(1 / np.sqrt(self.values))

    def map(self, change: Reshape) -> "Floats":
        """Reshape or select."""
        return Floats(change(self.values))

    def sigmoid(self) -> "Floats":
        """Return 1/(1 + exp(-z))."""
        return Floats(1 / (1 + np.exp(-self.values)))


Named = dict[str, Floats]
Of = Callable[[Float64s], Floats]
Function = Callable[[Floats], Floats]


class Formulas:
    """The inputs of a case by unit, and the formulas on them.

    `units` selects some of the units; then there are no sums over rows. If `finite`, numbers that
    are not finite are zeros, and so is a unit beside such an x: in sums that are finite all the
    same, they count as such.
    """

    def __init__(
        self,
        norm: "GroupedNorm",
        case: Case,
        units: Units | None = None,
        *,
        finite: bool = False,
    ) -> None:
        self.norm, self.case = norm, case
        self.geometry: Geometry = norm.geometry(case)
        self.selected, self.finite = units, finite
        self.size = self.geometry.unit_size
        self.counted = norm.counted(self.size)

    def _select(self, units: Array) -> Array:
        if self.selected is None or len(units) == 1:
            return units
        return units[self.selected % len(units)] if len(units) else units

    def rows(self, name: str) -> Float64s:
        """Return an input of rows by unit, in float64."""
        units = self._given(name)
        if not self.finite:
            return units
        keep: Array = np.asarray(np.isfinite(units))
        if name == "x":
            if self.norm.gate_first:
                keep = keep & np.isfinite(self._given("z"))
            keep = np.all(keep, axis=1, keepdims=True)
        return np.where(keep, units, 0.0)

    def _given(self, name: str) -> Float64s:
        """Return an input by unit as it is given; the sigmoid of an infinite z is finite."""
        rows = self.norm.normalized(self.case) if name == "x" else self.case.rows[name]
        units: Float64s = self._select(self.geometry.units_of(rows.astype(np.float64)))
        if name == "z" and self.norm.activation == "sigmoid":
            units = np.where(np.isinf(units), np.copysign(SATURATING, units), units)
        return units

    def columns(self, name: str, default: float) -> Float64s:
        """Return the numbers of a parameter or of a modulation for each element of each unit."""
        array = self.case.inputs.get(name)
        wide = None if array is None else array.astype(np.float64)
        spread: Float64s = self._select(self.geometry.of_columns(wide, default))
        if len(spread) == 1 or self.selected is not None:
            return spread
        count = self.case.shape[0] * self.geometry.count
        return np.resize(spread, (count, self.size))

    def step(self, name: str, value: Floats) -> Floats:  # noqa: ARG002 (a hypothesis uses it)
        """Return the result of a step, which a hypothesis may replace."""
        return value

    def forward(self, of: Of, sigmoid: Function) -> Named:
        """Return the steps of forward."""
        norm, one = self.norm, of(np.ones((1, 1)))
        x = of(self.rows("x"))
        steps: Named = {}
        if norm.gates_by_z:
            z = of(self.rows("z"))
            sigma = sigmoid(z)
            s, slope = self._gate(z, sigma, one)
            steps["s"], steps["slope"] = self.step("s", s), self.step("slope", slope)
        u = x * steps["s"] if norm.gate_first else x
        c = u - u.sum(1).over(self.size) if norm.centred else u
        part = c.map(lambda each: each[:, : self.counted])
        squares = (part * part).sum(1)
        w = squares if norm.divisor == "sum" else squares.over(self.counted)
        w = self.step("w", w)
        r = self.step("r", (w + of(np.full((1, 1), self.case.eps))).inverse_root())
        xhat = self.step("xhat", c * r)
        offset = 1.0 if norm.gain == "zero-centred" else 0.0
        gain = of(self.columns("gamma", 1.0 - offset)) + of(np.full((1, 1), offset))
        gain = self.step("gain", gain)
        n = gain * xhat
        if "beta" in norm.parameters:
            n = n + self.step("beta", of(self.columns("beta", 0.0)))
        m = n
        if norm.modulate:
            steps["factor"] = one + self.step("scale", of(self.columns("scale", 0.0)))
            m = n * steps["factor"] + self.step("shift", of(self.columns("shift", 0.0)))
        y = m
        if norm.gate == "self":
            m = self.step("m", m)
            y, slope = self._gate(m, sigmoid(m), one)
            y, steps["slope"] = self.step("y", y), self.step("slope", slope)
        elif norm.gates_by_z and not norm.gate_first:
            y = m * steps["s"]
        return {**steps, "x": x, "r": r, "xhat": xhat, "gain": gain, "n": n, "m": m, "y": y}

    def _gate(self, z: Floats, sigma: Floats, one: Floats) -> tuple[Floats, Floats]:
        """Return s(z) and its derivative."""
        if self.norm.activation == "sigmoid":
            return sigma, sigma * (one - sigma)
        return z * sigma, sigma * (one + z * (one - sigma))

    def backward(self, at: Named, of: Of) -> Named:
        """Return gradients of rows, and the terms of sums over rows and over units."""
        terms = self.terms(at, of)
        return {**terms, **self.input_gradients(at, terms["e"], of)}

    def terms(self, at: Named, of: Of) -> Named:
        """Return the terms of sums, dz of a gate after the norm, and the gradient e of n."""
        norm = self.norm
        dy = of(self.rows("dy"))
        d = dy
        results: Named = {}
        if norm.gate == "self":
            d = dy * at["slope"]
        elif norm.gates_by_z and not norm.gate_first:
            d = dy * at["s"]
            results["dz"] = self.step("dz", dy * at["m"] * at["slope"])
        d = self.step("d", d)
        results |= {"dshift": d, "dscale": self.step("dscale", d * at["n"])}
        e = self.step("e", d * at["factor"] if norm.modulate else d)
        return {**results, "dgamma": self.step("terms", e * at["xhat"]), "dbeta": e, "e": e}

    def input_gradients(self, at: Named, e: Floats, of: Of) -> Named:
        """Return dx, and dz of a gate before the norm."""
        norm, results = self.norm, Named()
        g = self.step("g", at["gain"] * e)
        along = (g * at["xhat"]).sum(1)
        along = along if norm.divisor == "sum" else along.over(self.counted)
        projected = at["xhat"] * self.step("along", along)
        if self.counted < self.size:
            projected = self.step("projected", projected.map(self._of_counted))
        inner = g - self.step("mean_g", g.sum(1).over(self.size)) if norm.centred else g
        du = at["r"] * (inner - projected)
        if norm.gate_first:
            results["dz"] = du * at["x"] * at["slope"]
            du = du * at["s"]
        if norm.adds:
            du = du + of(self.rows("dsum"))
        results["dx"] = du
        return results

    def _of_counted(self, units: Array) -> Array:
        """Return 0 in the columns that do not count for the variance."""
        units = units.copy()
        units[:, self.counted :] = np.zeros(1, units.dtype)[0]
        return units

    def results(self, of: Of, sigmoid: Function) -> Named:
        """Return all steps and gradients, by unit."""
        at = self.forward(of, sigmoid)
        return {**at, **(self.backward(at, of) if "dy" in self.case.inputs else {})}

    def summands(self, terms: Floats, output: str) -> Floats:
        """Return the terms of a sum as columns: over rows for a parameter, else over units."""
        count, width = self.case.shape[0], self.geometry.width
        full = self.case.shape[0] * self.geometry.count, self.size

        def arrange(each: Array) -> Array:
            rows = np.broadcast_to(each, full).reshape(count, -1)[:, self.geometry.by_column]
            moved = rows.transpose(2, 0, 1) if output in ROW_SUMS else rows.transpose(0, 2, 1)
            return moved.reshape(-1, count * width if output in ROW_SUMS else width)

        return terms.map(arrange)


ROW_SUMS = ("dscale", "dshift")
"""Results that are sums over the units of a row; those of parameters are sums over rows too."""
OF_UNITS = ("y", "dx", "dz", "dresidual")
