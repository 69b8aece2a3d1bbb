"""The formulas of grouped, gated and modulated norms.

With s the gate, a unit of a row has

    u = x, or x*s(z) if the gate is first;  c = u - mean(u) if centred, else u
    r = 1/sqrt(mean(c^2 over the first columns) + eps);  xhat = c*r;  n = gain*xhat + beta
    m = n*(1 + scale) + shift;  y = m, or m*s(z), or silu(m)

and, with d the gradient of m and e = d*(1 + scale), g = gain*e,

    dgamma = sum(e*xhat), dbeta = sum(e), dscale = sum(d*n), dshift = sum(d)
    du = r*(g - mean(g) - xhat*mean(g*xhat)), the last term in the first columns only
    dx = du, or du*s(z);  dz = dy*m*s'(z), or du*x*s'(z) if the gate is first
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.formulas.answers import Answers
from truenorm.verify.formulas.graph import (
    Node,
    constant,
    first,
    given,
    inverse_root,
    mean,
    pad,
    sigmoid,
    step,
    total,
)
from truenorm.verify.norms.changes import R
from truenorm.verify.norms.exact import round_sum
from truenorm.verify.norms.norm import Geometry, Norm
from truenorm.verify.operation import Case
from truenorm.verify.oracle import AnswerBounds, Expected, output_types
from truenorm.verify.types import Array, Float64s

Axes = Collection[int]
Steps = dict[str, Node]
MODULATION = ("scale", "shift")
ABSENT = {"beta": 0.0, "scale": 0.0, "shift": 0.0, "dsum": 0.0}
"""Numbers in place of absent inputs."""
SATURATING = 2000.0
"""A z whose sigmoid is 0 or 1 in every type, like the sigmoid of an infinite z."""


def gate(z: Node, activation: str) -> tuple[Node, Node]:
    """Return s(z) and its derivative."""
    sigma = sigmoid(z)
    if activation == "sigmoid":
        return step(f"s({z})", sigma), step(f"s'({z})", sigma * (1.0 - sigma))
    step(f"sigma({z})", sigma)
    return step(f"s({z})", z * sigma), step(f"s'({z})", sigma * (1.0 + z * (1.0 - sigma)))


def normalize(norm: Norm, u: Node, eps: Node, unit: Axes) -> Steps:
    """Return xhat and the statistics of units."""
    c = step(f"{u} - mean", u - step("the mean", mean(u, unit))) if norm.centred else u
    counted = first(c, max(unit), float(norm.share))
    squares = counted * counted
    w = step("the variance" if norm.centred else "the mean square", mean(squares, unit))
    r = step(R, inverse_root(w + eps))
    return {"c": c, "w": w, "r": r, "xhat": step("xhat", c * r)}


def forward(norm: Norm, at: Mapping[str, Node], unit: Axes) -> Steps:
    """Return y, and the steps that backward needs."""
    s = slope = constant(1.0)
    if norm.gates_by_z:
        s, slope = gate(at["z"], norm.activation)
    u = step("u", at["x"] * s) if norm.gate_first else at["x"]
    steps = normalize(norm, u, at["eps"], unit)
    gain = at["gamma"] if norm.gain == "plain" else step("1 + gamma", 1.0 + at["gamma"])
    product = steps["xhat"] * gain
    step(repr(product), product)
    n = step("n", product + at["beta"])
    factor = step("1 + scale", 1.0 + at["scale"])
    modulated = step("n*(1 + scale)", n * factor)
    y = m = step("m", modulated + at["shift"])
    if norm.gate == "self":
        y, slope = gate(m, norm.activation)
    elif norm.gates_by_z and not norm.gate_first:
        y = m * s
    own = {"s": s, "slope": slope, "u": u, "gain": gain, "product": product, "n": n}
    return {**steps, **own, "factor": factor, "modulated": modulated, "m": m, "y": y}


def backward(
    norm: Norm,
    at: Mapping[str, Node],
    unit: Axes,
    sums: Mapping[str, set[int]],
) -> Steps:
    """Return the gradients, from the steps of forward; `sums` are the axes of sums by input."""
    dy, xhat, r, results = at["dy"], at["xhat"], at["r"], Steps()
    d = dy
    if norm.gate == "self":
        d = dy * at["slope"]
    elif norm.gates_by_z and not norm.gate_first:
        d, results["dz"] = dy * at["s"], dy * at["m"] * at["slope"]
    e = d * at["factor"]
    terms = {"gamma": e * xhat, "beta": e, "scale": d * at["n"], "shift": d}
    results |= {f"d{name}": total(each, sums[name]) for name, each in terms.items()}
    g = step("g", at["gain"] * e)
    share = float(norm.share)
    along = step("mean(g*xhat)", mean(g * xhat, unit, share))
    projected = first(xhat, max(unit), share) * along
    projected = projected if share == 1 else pad(projected, xhat, max(unit))
    inner = g - step("mean(g)", mean(g, unit)) if norm.centred else g
    du = step("du", r * (inner - step(f"xhat*{along}", projected)))
    if norm.gate_first:
        results["dz"] = du * at["x"] * at["slope"]
        du = du * at["s"]
    results["dx"] = results["dresidual"] = du + at["dsum"]
    own = {"e": e, "along": along, "projected": projected, "dgamma_terms": terms["gamma"]}
    return results | own


class Key(NamedTuple):
    """The key of the graph of a norm: the names of axes in a `Geometry`, and the inputs."""

    axes: str
    units: str
    columns: str
    present: frozenset[str]

    @classmethod
    def of(cls, geometry: Geometry, present: Iterable[str]) -> "Key":
        """Return the key for a division of rows and the names of the inputs."""
        names = (geometry.axes, geometry.units, geometry.columns)
        return cls(*names, frozenset(present) - {"residual"} | {"eps"})


@cache
def graph_of(norm: Norm, key: Key) -> Steps:
    """Return inputs, steps and results of a norm by name."""
    number = {name: place for place, name in enumerate(key.axes.split(), 1)}
    within, columns = ({number[name] for name in each.split()} for each in key[1:3])
    every, unit = {0, *number.values()}, {*number.values()} - within
    axes = {"eps": set[int](), "gamma": columns, "beta": columns}
    axes |= {name: {0, *columns} for name in MODULATION}
    at: Steps = {name: given(name, axes.get(name, every)) for name in key.present}
    absent = {"gamma": float(norm.gain == "plain"), **ABSENT}
    known = {name: constant(value) for name, value in absent.items()} | at
    steps = forward(norm, known, unit)
    if "dy" in key.present:
        over = {name: every - axes[name] for name in ("gamma", "beta", *MODULATION)}
        steps |= backward(norm, known | steps, unit, over)
    return at | steps


def key_of(norm: Norm, case: Case, geometry: Geometry | None = None) -> Key:
    """Return the key of a case, also with another division of its rows."""
    present = (name for name, each in case.inputs.items() if each is not None)
    return Key.of(geometry or norm.geometry(case), present)


def given_of(norm: Norm, case: Case, geometry: Geometry) -> dict[str, Float64s]:
    """Return the inputs of a case in float64, with the axes of a graph.

    The sigmoid of an infinite z is finite.
    """
    sizes, columns = geometry.shape(geometry.axes), geometry.shape(geometry.columns)
    arrays = {"eps": np.full((1,) * (len(sizes) + 1), case.eps)}
    for name, array in case.inputs.items():
        if array is not None and name != "residual":
            wide = norm.normalized(case) if name == "x" else array.astype(np.float64)
            if name == "z" and norm.activation == "sigmoid":
                wide = np.where(np.isinf(wide), np.copysign(SATURATING, wide), wide)
            per_column = name in (*MODULATION, *norm.parameters)
            arrays[name] = wide.reshape(-1, *(columns if per_column else sizes))
    return arrays


def exact_answers(norm: Norm, case: Case) -> dict[str, Float64s]:
    """Return the answers of `Operation.exact`, and r and xhat of each row."""
    once, repeats = case.part(slice(case.shape[0] // case.repeats)), case.repeats
    geometry = norm.geometry(once)
    graph, kinds = graph_of(norm, key_of(norm, once)), output_types(once)
    outputs = {name: graph[name] for name in ("r", "xhat", *kinds) if name != "sum"}
    answers = Answers(outputs, given_of(norm, once, geometry), repeats)
    arrays = {name: answers.float64(name).reshape(len(once.x), -1) for name in ("r", "xhat")}
    for output, kind in kinds.items():
        if output == "sum":
            arrays[output] = round_sum(once.x, once.residual)
        else:
            rows = [len(once.x)] if norm.is_rows(output) else []
            arrays[output] = answers.rounded(output, kind).reshape(*rows, -1, 2)
    return arrays


class GroupedExpected(Expected):
    """Answers of a grouped norm: the silu of minus infinity may be 0 or NaN."""

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
