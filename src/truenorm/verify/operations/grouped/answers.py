"""The formulas of grouped norms, in any arithmetic, and their exact answers.

With s the gate and k the number of columns that count for the variance, a unit has

    u = x, or x*s(z) if the gate is first;  c = u - mean(u) if centred, else u
    r = 1/sqrt(sum(c^2 over the first k)/k + eps);  xhat = c*r;  n = gain*xhat + beta
    m = n*(1 + scale) + shift;  y = m, or m*s(z), or silu(m)

and, with d the gradient of m and e = d*(1 + scale), g = gain*e,

    dn/dgamma: dgamma = sum(e*xhat), dbeta = sum(e), dscale = sum(d*n), dshift = sum(d)
    du = r*(g - mean(g) - xhat*sum(g*xhat)/k), the last term in the first k columns only
    dx = du, or du*s(z);  dz = dy*m*s'(z), or du*x*s'(z) if the gate is first
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.enclosures import Ball, round_ball
from truenorm.verify.operation import Case
from truenorm.verify.operations.exact import round_sum
from truenorm.verify.operations.grouped.geometry import Geometry
from truenorm.verify.operations.grouped.numbers import (
    Arbs,
    Floats,
    Roots,
    flint,
    round_arb,
    sigmoid_of_balls,
)
from truenorm.verify.oracle import AnswerBounds, Expected, output_types, round_exactly
from truenorm.verify.types import FORMATS, Array, Float64s, ulps_of

if TYPE_CHECKING:
    from truenorm.verify.operations.grouped.norm import GroupedNorm

N = TypeVar("N", Ball, Floats, Arbs, Roots)
Units = NDArray[np.intp]
FIRST_BITS, MOST_BITS = 256, 2**14
"""Precision of arbs: it is multiplied by four until a rounding is decided. A number that is
undecided at the last is taken for a tie, as sums over rows may be. For gradients of a gate before
the norm this is not proven: their answer may be the other neighbour of the tie."""


SATURATING = 2000.0
"""A z whose sigmoid is 0 or 1 in every type, as that of an infinite z is."""


class GroupedExpected(Expected):
    """Answers of a grouped norm: those of a silu at minus infinity are 0 or NaN."""

    def misplaced(
        self, output: str, result: Array, bounds: AnswerBounds | None = None
    ) -> NDArray[np.bool_]:
        """Return True for each element that should be NaN or infinite and is not.

        The limit of silu at minus infinity is 0, and z*sigma(z) is NaN there.
        """
        z = self._case.inputs.get("z")
        with np.errstate(all="ignore"):
            wrong = super().misplaced(output, result, bounds)
            if z is not None and np.isneginf(z.astype(np.float64)).any():
                wrong &= ~np.isnan(self.wide[output])
        return wrong


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

    def step(self, name: str, value: N) -> N:  # noqa: ARG002 (a hypothesis uses it)
        """Return the result of a step, which a hypothesis may replace."""
        return value

    def forward(self, of: Callable[[Float64s], N], sigmoid: Callable[[N], N]) -> dict[str, N]:
        """Return the steps of forward."""
        norm, one = self.norm, of(np.ones((1, 1)))
        x = of(self.rows("x"))
        steps: dict[str, N] = {}
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

    def _gate(self, z: N, sigma: N, one: N) -> tuple[N, N]:
        """Return s(z) and its derivative."""
        if self.norm.activation == "sigmoid":
            return sigma, sigma * (one - sigma)
        return z * sigma, sigma * (one + z * (one - sigma))

    def backward(self, at: dict[str, N], of: Callable[[Float64s], N]) -> dict[str, N]:
        """Return gradients of rows, and the terms of sums over rows and over units."""
        terms = self.terms(at, of)
        return {**terms, **self.input_gradients(at, terms["e"], of)}

    def terms(self, at: dict[str, N], of: Callable[[Float64s], N]) -> dict[str, N]:
        """Return the terms of sums, dz of a gate after the norm, and the gradient e of n."""
        norm = self.norm
        dy = of(self.rows("dy"))
        d = dy
        results: dict[str, N] = {}
        if norm.gate == "self":
            d = dy * at["slope"]
        elif norm.gates_by_z and not norm.gate_first:
            d = dy * at["s"]
            results["dz"] = self.step("dz", dy * at["m"] * at["slope"])
        d = self.step("d", d)
        results |= {"dshift": d, "dscale": self.step("dscale", d * at["n"])}
        e = self.step("e", d * at["factor"] if norm.modulate else d)
        return {**results, "dgamma": self.step("terms", e * at["xhat"]), "dbeta": e, "e": e}

    def input_gradients(self, at: dict[str, N], e: N, of: Callable[[Float64s], N]) -> dict[str, N]:
        """Return dx, and dz of a gate before the norm."""
        norm, results = self.norm, dict[str, N]()
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

    def results(self, of: Callable[[Float64s], N], sigmoid: Callable[[N], N]) -> dict[str, N]:
        """Return all steps and gradients, by unit."""
        at = self.forward(of, sigmoid)
        return {**at, **(self.backward(at, of) if "dy" in self.case.inputs else {})}

    def summands(self, terms: N, output: str) -> N:
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


@np.errstate(all="ignore")  # an overflow makes a radius infinite or NaN
def exact_answers(norm: "GroupedNorm", case: Case) -> dict[str, Float64s]:
    """Return the answers of `Operation.exact`, and r, xhat and the gate of each row."""
    once = case.part(slice(case.shape[0] // case.repeats))
    return _Answers(Formulas(norm, once), case.repeats).arrays()


class _Answers:
    """Rounds the results of all formulas: by balls, and where those do not decide, exactly."""

    def __init__(self, formulas: Formulas, repeats: int) -> None:
        self.formulas, self.repeats = formulas, repeats
        self.norm, self.case = formulas.norm, formulas.case
        self.finite = Formulas(formulas.norm, formulas.case, finite=True)
        self.balls = self.finite.results(Ball.of, sigmoid_of_balls)
        self.floats = formulas.results(Floats.of, Floats.sigmoid)

    def arrays(self) -> dict[str, Float64s]:
        geometry, count = self.formulas.geometry, self.case.shape[0]
        full = count * geometry.count, geometry.unit_size
        arrays: dict[str, Float64s] = {
            "r": _finite(self.balls["r"].high).reshape(count, -1),
            "xhat": geometry.rows_of(_finite(np.broadcast_to(self.balls["xhat"].high, full))),
        }
        if "s" in self.balls:
            arrays["s"] = geometry.rows_of(_finite(self.balls["s"].high))
        for output, kind in output_types(self.case).items():
            if output == "sum":
                arrays[output] = round_sum(self.case.x, self.case.residual)
            elif output in OF_UNITS:
                arrays[output] = geometry.rows_of(self._of_units(output, kind))
            else:
                arrays[output] = self._of_sums(output, kind)
        return arrays

    def _of_units(self, output: str, kind: str) -> Float64s:
        """Return the rounded results of all units, and their remainders."""
        name = "dx" if output == "dresidual" else output
        ball = self.balls[name]
        rounded = round_ball(ball, kind)
        pairs = np.stack([rounded.value, rounded.remainder], axis=-1)
        values = self.floats[name].values
        special = ~np.isfinite(values) | ~self._is_finite(backward=output != "y")
        pairs[special] = np.stack([values, np.zeros_like(values)], axis=-1)[special]
        open_ = ~(rounded.low == rounded.high) & ~special
        units = np.flatnonzero(open_.any(axis=1))
        if units.size:
            part = Formulas(self.norm, self.case, units)
            pairs[units] = np.where(
                open_[units][..., np.newaxis],
                self._exactly(part, name, kind, open_[units]),
                pairs[units],
            )
        return pairs

    def _is_finite(self, *, backward: bool) -> NDArray[np.bool_]:
        """Return True for each unit whose inputs are finite, as a column."""
        names = [name for name in self.case.rows if name in WITH_ELEMENTS]
        names = [name for name in names if backward or name not in ("dy", "dsum")]
        finite = [np.isfinite(self.formulas.rows(name)).all(axis=1) for name in names]
        return np.asarray(np.all(finite, axis=0))[:, np.newaxis]

    def _exactly(
        self, formulas: Formulas, name: str, kind: str, wanted: NDArray[np.bool_]
    ) -> Float64s:
        """Return the rounded results of some units where they are wanted."""
        pairs = np.zeros((*wanted.shape, 2))
        if not self.norm.gate:
            forward = formulas.forward(Roots.of, _no_gate)
            at = forward if name == "y" else formulas.backward(forward, Roots.of)
            roots = at[name].map(lambda each: np.broadcast_to(each, wanted.shape)[wanted])
            pairs[wanted] = round_exactly(roots.exact(), FORMATS[kind])
            return pairs

        def compute() -> Any:
            return formulas.results(Arbs.of, Arbs.sigmoid)[name].values[wanted]

        pairs[wanted] = _refined(compute, int(wanted.sum()), kind, 1)
        return pairs

    def _of_sums(self, output: str, kind: str) -> Float64s:
        """Return the rounded sums, and their remainders: one for each column, or each row's."""
        repeats = 1 if output in ROW_SUMS else self.repeats
        summands = self.formulas.summands(self.balls[output], output)
        total = summands.sum(0)
        if repeats & (repeats - 1):
            total = total * Ball.of(np.full((1, 1), float(repeats)))
        else:  # without an error
            total = total.map(lambda each: each * repeats)
        rounded = round_ball(Ball(total.high[0], total.low[0], total.radius[0]), kind)
        pairs = np.stack([rounded.value, rounded.remainder], axis=-1)
        values = self.formulas.summands(self.floats[output], output).sum(0).values[0] * repeats
        special = ~np.isfinite(values)
        pairs[special] = np.stack([values, np.zeros_like(values)], axis=-1)[special]
        open_ = np.flatnonzero(~(rounded.low == rounded.high) & ~special)
        if open_.size:
            pairs[open_] = self._sums_exactly(output, kind, open_, repeats)
        width = self.formulas.geometry.width
        return pairs.reshape(-1, width, 2) if output in ROW_SUMS else pairs

    def _sums_exactly(self, output: str, kind: str, columns: Units, repeats: int) -> Float64s:
        formulas = self.finite

        def select(each: Array) -> Array:
            return each[:, columns]

        if not self.norm.gate:
            is_dy = output in ("dbeta", "dshift") and not self.norm.modulate
            terms = (
                Roots.of(formulas.rows("dy"))
                if is_dy  # a sum of inputs, which may be a tie: no other step is needed
                else formulas.terms(formulas.forward(Roots.of, _no_gate), Roots.of)[output]
            )
            roots = formulas.summands(terms, output)
            return round_exactly(roots.map(select).column_sums(repeats), FORMATS[kind])

        def compute() -> Any:
            terms = formulas.results(Arbs.of, Arbs.sigmoid)[output]
            return formulas.summands(terms, output).map(select).sum(0).values[0]

        return _refined(compute, len(columns), kind, repeats)


WITH_ELEMENTS = ("x", "residual", "z", "dy", "dsum")
"""Inputs with a number for each element of a row."""


def _no_gate(_: Roots) -> Roots:
    raise AssertionError("a gate is not rational")


def _finite(values: Float64s) -> Float64s:
    return np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)


def _refined(compute: Callable[[], Any], count: int, kind: str, repeats: int) -> Float64s:
    """Return rounded arbs and their remainders, at the precision that decides them."""
    module, target = flint(), FORMATS[kind]
    pairs = np.full((count, 2), np.nan)
    bits = FIRST_BITS
    while np.isnan(pairs[:, 0]).any() and bits <= MOST_BITS:
        with module.ctx.workprec(bits):
            for place, ball in enumerate(compute()):
                exact = ball * repeats
                value = round_arb(exact, target, is_last=bits == MOST_BITS)
                if value is not None and np.isnan(pairs[place, 0]):
                    remainder = 0.0
                    if np.isfinite(value):
                        ulp = float(ulps_of(np.asarray(value), kind))
                        remainder = float((exact - module.arb(value)) / module.arb(ulp))
                    pairs[place] = value, remainder
        bits *= 4
    return pairs
