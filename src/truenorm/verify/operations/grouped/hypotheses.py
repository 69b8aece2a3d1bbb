"""Hypotheses of what kernels of grouped norms do wrong: results by formulas with one change."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from truenorm.verify.formula.rounding import accumulate_rows, rounded
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.operations.grouped.answers import OF_UNITS, ROW_SUMS, Floats, Formulas
from truenorm.verify.operations.grouped.geometry import Geometry
from truenorm.verify.operations.hypotheses import read_without_gaps
from truenorm.verify.types import Float64s

if TYPE_CHECKING:
    from truenorm.verify.operations.grouped.norm import GroupedNorm

Change = Callable[["ChangedFormulas", Float64s], Float64s]
Sums = Callable[[Case, Float64s], Float64s]
LARGEST_EXP = 88.72
"""exp overflows in float32 above it."""
BLOCK = 64
"""Elements that a kernel reads at a time."""


@dataclass(frozen=True)
class Wrong:
    """One change: steps, the inputs, how a row is divided, the norm, or how terms are summed.

    `sums` gets the terms of a sum over rows as (rows, columns, terms), and those of a sum over
    units as (terms, columns).
    """

    steps: Mapping[str, Change] = field(default_factory=dict)
    inputs: Callable[[Case], Case] | None = None
    geometry: Callable[[Geometry], Geometry] | None = None
    norm: "GroupedNorm | None" = None
    sums: Sums | None = None
    returned: Mapping[str, str] = field(default_factory=dict)


class ChangedFormulas(Formulas):
    """The formulas with one change, in float64."""

    def __init__(self, norm: "GroupedNorm", case: Case, wrong: Wrong) -> None:
        super().__init__(wrong.norm or norm, wrong.inputs(case) if wrong.inputs else case)
        self.wrong, self.at = wrong, dict[str, Float64s]()
        if wrong.geometry:
            self.geometry = wrong.geometry(self.geometry)
            self.size = self.geometry.unit_size
            self.counted = self.norm.counted(self.size)

    def step(self, name: str, value: Any) -> Any:
        """Return the result of a step, or that of the change."""
        if name in self.wrong.steps:
            value = Floats(np.asarray(self.wrong.steps[name](self, value.values)))
        self.at[name] = value.values
        return value

    def whole_rows(self, units: Float64s) -> Float64s:
        """Return units of a row beside each other."""
        return units.reshape(self.case.shape[0], -1)

    def result(self, output: str) -> Float64s:
        """Return an output."""
        output = self.wrong.returned.get(output, output)
        terms = self.results(Floats.of, Floats.sigmoid)[output if output != "dresidual" else "dx"]
        geometry, count = self.geometry, self.case.shape[0]
        full = np.broadcast_to(terms.values, (count * geometry.count, self.size))
        if output in OF_UNITS:
            rows: Float64s = geometry.rows_of(full)
            return rows
        by_column = full.reshape(count, -1)[:, geometry.by_column]
        if self.wrong.sums:
            return self.wrong.sums(self.case, by_column)
        sums = by_column.sum(axis=2)
        return sums if output in ROW_SUMS else np.asarray(sums.sum(axis=0))


def hypotheses_of(norm: "GroupedNorm", output: str) -> dict[str, Hypothesis]:
    """Return the hypotheses about an output by their words."""
    table = {
        **_of_units(norm),
        **_of_statistics(norm),
        **(_of_saved() if output[0] == "d" and not norm.gate_first else {}),
        **_of_gates(norm, output),
        **_of_inputs(norm),
        **(_of_gradients(norm, output) if output[0] == "d" else {}),
    }
    if output in ("dgamma", "dbeta", *ROW_SUMS):
        table |= _of_sums(norm, output)
    return {words: partial(_evaluate, norm, output, wrong) for words, wrong in table.items()}


def _evaluate(norm: "GroupedNorm", output: str, wrong: Wrong, case: Case) -> Float64s:
    with np.errstate(all="ignore"):
        return ChangedFormulas(norm, case, wrong).result(output)


def _of_units(norm: "GroupedNorm") -> dict[str, Wrong]:
    """Return hypotheses about how rows are divided."""
    name = "groups"
    if norm.axes > 1:
        words = "the last axis alone is normalized"
        return {words: Wrong(geometry=lambda each: replace(each, units="a"))}
    if norm.groups == 1:
        options = {"heads": norm.heads, "places": norm.over == "channels"}
        options |= {"channels": norm.name == "instance_norm", "rows": norm.modulate == "sample"}
        name = next((words for words, used in options.items() if used), "")
    if not name:
        return {}
    table = {
        f"{name} are ignored": Wrong(geometry=lambda each: replace(each, units="")),
        f"{name} are ignored in the means of backward": Wrong(
            {"along": _mean_of_row, "mean_g": _mean_of_row}
        ),
        f"squares of the next of the {name} are counted, up to a power of two": Wrong(
            {"xhat": _with_next_unit}
        ),
    }
    if name == "groups":
        table |= {
            "there are twice as many groups": Wrong(geometry=_twice_the_groups),
            "gamma and beta are those of the first column of a group": Wrong(
                inputs=partial(_other_columns, lambda each: _first_of_group(norm, each))
            ),
            "gamma and beta are those of the first group": Wrong(
                inputs=partial(_other_columns, lambda each: _of_first_group(norm, each))
            ),
            "groups are interleaved: column c is in group c % G": Wrong(geometry=_interleaved),
        }
        if norm.spatial:
            table |= {
                "dgamma has the mean and r of group c % G, not of c // (C/G)": Wrong(
                    {"terms": _of_other_groups}
                ),
            }
    if norm.spatial:
        table["gamma and beta are read at offset % C, as though channels were the last axis"] = (
            Wrong({name: partial(_channels_last, name) for name in ("gain", "beta")})
        )
    return table


def _mean_of_row(at: ChangedFormulas, means: Float64s) -> Float64s:
    """Return the mean over all units of a row, for each of them."""
    rows = at.whole_rows(means).mean(axis=1, keepdims=True)
    return np.repeat(rows, at.geometry.count, axis=0)


def _with_next_unit(at: ChangedFormulas, xhat: Float64s) -> Float64s:
    """Return xhat whose variance has the first elements of the next unit in lanes beyond it."""
    r, size = at.at["r"], at.size
    x = at.geometry.units_of(at.norm.normalized(at.case)).reshape(-1, at.geometry.count, size)
    mean = x.mean(axis=2, keepdims=True) if at.norm.centred else 0.0 * x[..., :1]
    over = x[:, 1:, : (1 << (size - 1).bit_length()) - size] - mean[:, :-1]
    more = np.zeros((*x.shape[:2], 1))
    more[:, :-1] = (over**2).sum(axis=2, keepdims=True) / size
    return np.asarray(xhat / r / np.sqrt(1 / r**2 + more.reshape(-1, 1)))


def _twice_the_groups(geometry: Geometry) -> Geometry:
    inner = "c" if "c" in geometry.sizes else "d"
    if geometry.sizes[inner] % 2:
        return geometry
    sizes = {**geometry.sizes, "g": 2 * geometry.sizes["g"], inner: geometry.sizes[inner] // 2}
    return replace(geometry, sizes=sizes)


def _first_of_group(norm: "GroupedNorm", columns: Float64s) -> Float64s:
    size = len(columns) // norm.groups
    return np.repeat(columns[::size], size)


def _of_first_group(norm: "GroupedNorm", columns: Float64s) -> Float64s:
    return np.tile(columns[: len(columns) // norm.groups], norm.groups)


def _interleaved(geometry: Geometry) -> Geometry:
    inner = "c" if "c" in geometry.sizes else "d"
    swapped = {"g": inner, inner: "g", "s": "s"}
    axes, columns = (
        " ".join(swapped[name] for name in names.split())
        for names in (geometry.axes, geometry.columns)
    )
    return replace(geometry, axes=axes, columns=columns)


def _of_other_groups(at: ChangedFormulas, terms: Float64s) -> Float64s:
    """Return the terms of dgamma with the mean and r of other groups."""
    sizes, groups = at.geometry.sizes, at.geometry.count
    x = at.geometry.units_of(at.norm.normalized(at.case))
    r, mean = at.at["r"].reshape(-1, groups), x.mean(axis=1).reshape(-1, groups)
    group = np.arange(groups * sizes["c"]) % groups
    by_channel = (len(r), len(group), -1)
    e = at.rows("dy") if not at.norm.gate else terms / at.at["xhat"]
    wrong = x.reshape(by_channel) - mean[:, group, np.newaxis]
    wrong = wrong * r[:, group, np.newaxis] * e.reshape(by_channel)
    return np.asarray(wrong.reshape(terms.shape))


def _channels_last(name: str, at: ChangedFormulas, right: Float64s) -> Float64s:
    columns = at.case.inputs.get({"gain": "gamma"}.get(name, name))
    if columns is None:
        return right
    places = np.arange(at.case.shape[1]) % len(columns)
    offset = name == "gain" and at.norm.gain == "zero-centred"
    row = columns.astype(np.float64)[places] + offset
    return np.tile(row.reshape(at.geometry.count, -1), (at.case.shape[0], 1))


def _of_statistics(norm: "GroupedNorm") -> dict[str, Wrong]:
    """Return hypotheses about r."""
    table = {
        "eps is left out": Wrong(inputs=lambda case: replace(case, eps=0.0)),
        "eps is added to the sum of squares, not to their mean": Wrong(
            {"r": lambda at, r: 1 / np.sqrt(1 / r**2 + at.case.eps * (1 / at.counted - 1))}
        ),
        "eps is added to the root": Wrong(
            {"r": lambda at, _: 1 / (np.sqrt(at.at["w"]) + at.case.eps)}
        ),
        "the sum of squares is divided by n - 1": Wrong(
            {"w": lambda at, w: w * (at.counted / max(at.counted - 1, 1))}
        ),
        "r is 1 where the variance is 0": Wrong(
            {"r": lambda at, r: np.where(at.at["w"] <= 0, 1.0, r)}
        ),
        "xhat*mean(g*xhat) is left out": Wrong({"along": lambda _, along: 0 * along}),
        f"the mean and r are without the last n % {BLOCK} elements": Wrong(
            {
                "r": lambda at, _: _of_whole_blocks(at)[1],
                "xhat": lambda at, _: _of_whole_blocks(at)[0] * at.at["r"],
            }
        ),
    }
    if norm.adds and not norm.gate_first:
        table["r is that of x without the residual"] = Wrong({"w": _without_residual})
    if norm.divisor == "sum":
        del table["eps is added to the sum of squares, not to their mean"]
        table["squares are averaged, not summed"] = Wrong({"w": lambda at, w: w / at.size})
        table["g*xhat is averaged, not summed"] = Wrong({"along": lambda at, sum_: sum_ / at.size})
    if norm.centred:
        table["mean(g) is left out"] = Wrong({"mean_g": lambda _, mean: 0 * mean})
    if norm.share < 1:
        every = copy(norm)
        every.share = Fraction(1)
        table |= {
            "all columns count for the variance": Wrong(norm=every),
            "the sum of squares is divided by all columns": Wrong(
                {"w": lambda at, w: w * (at.counted / at.size)}
            ),
            "xhat*mean(g*xhat) is subtracted in all columns": Wrong(
                {"projected": lambda at, _: at.at["xhat"] * at.at["along"]}
            ),
        }
    return table


def _of_whole_blocks(at: ChangedFormulas) -> tuple[Float64s, Float64s]:
    """Return c and r of statistics that leave out the last elements of a unit."""
    u = at.rows("x") * at.at["s"] if at.norm.gate_first else at.rows("x")
    stop = at.counted // BLOCK * BLOCK or at.counted
    mean = u[:, :stop].sum(axis=1, keepdims=True) / at.size if at.norm.centred else 0.0
    squares = ((u - mean)[:, :stop] ** 2).sum(axis=1, keepdims=True)
    w = squares if at.norm.divisor == "sum" else squares / at.counted
    return u - mean, np.asarray(1 / np.sqrt(w + at.case.eps))


def _without_residual(at: ChangedFormulas, _: Float64s) -> Float64s:
    x = at.geometry.units_of(at.case.rows["x"].astype(np.float64))
    c = x - x.mean(axis=1, keepdims=True) if at.norm.centred else x
    squares = (c[:, : at.counted] ** 2).sum(axis=1, keepdims=True)
    return np.asarray(squares if at.norm.divisor == "sum" else squares / at.counted)


def _of_saved() -> dict[str, Wrong]:
    """Return hypotheses about what backward gets from forward."""
    return {
        f"the mean and r are saved in {kind}": Wrong(
            {"r": partial(_rounded, kind), "xhat": partial(_of_rounded_mean, kind)}
        )
        for kind in ("bfloat16", "float16")
    }


def _of_rounded_mean(kind: str, at: ChangedFormulas, _: Float64s) -> Float64s:
    x = at.rows("x")
    mean = x.mean(axis=1, keepdims=True) if at.norm.centred else np.zeros((len(x), 1))
    return np.asarray((x - rounded(mean, kind)) * at.at["r"])


def _of_gates(norm: "GroupedNorm", output: str) -> dict[str, Wrong]:
    """Return hypotheses about the gate."""
    if norm.gate == "self":
        return {
            "exp(m) overflows in the gate": Wrong({"y": _overflowing, "slope": _overflowing}),
            "the derivative of silu is taken at xhat": Wrong({"slope": _slope_at_xhat}),
        }
    if not norm.gates_by_z:
        return {}
    moved, other = copy(norm), copy(norm)
    moved.gate_first = not norm.gate_first
    other.activation = "sigmoid" if norm.activation == "silu" else "silu"
    where = "the gate comes after the norm" if norm.gate_first else "the gate comes first"
    table = {
        where: Wrong(norm=moved),
        f"the gate is {other.activation}, not {norm.activation}": Wrong(norm=other),
        "exp(z) overflows in the gate": Wrong({"s": _overflowing, "slope": _overflowing}),
        "dx and dz are the same: dz": Wrong(returned={"dx": "dz"}),
        "dx and dz are the same: dx": Wrong(returned={"dz": "dx"}),
        "dx and dz are exchanged": Wrong(returned={"dx": "dz", "dz": "dx"}),
        f"{'dgamma' if output == 'dgamma' else 'the result'} is without the gate": Wrong(
            {"s": lambda _, s: np.ones_like(s)}
        ),
        "dz is computed from the gated y": Wrong({"dz": lambda at, dz: dz * at.at["s"]}),
    }
    if norm.groups > 1:
        table["z is that of the first group"] = Wrong(inputs=partial(_gate_of_first_group, norm))
    if norm.activation == "silu":
        table["dz is without z*sigma*(1 - sigma)"] = Wrong(
            {"slope": lambda at, _: 1 / (1 + np.exp(-at.rows("z")))}
        )
    for kind in ("bfloat16", "float16"):
        table[f"the gate is rounded to {kind}"] = Wrong({"s": partial(_rounded, kind)})
    return table


def _gate_of_first_group(norm: "GroupedNorm", case: Case) -> Case:
    geometry = norm.geometry(case)
    first = geometry.units_of(case.rows["z"])[:: geometry.count]
    return case.with_inputs(z=geometry.rows_of(np.repeat(first, geometry.count, axis=0)))


def _slope_at_xhat(at: ChangedFormulas, _: Float64s) -> Float64s:
    xhat = at.at["xhat"]
    sigma = 1 / (1 + np.exp(-xhat))
    return np.asarray(sigma * (1 + xhat * (1 - sigma)))


def _overflowing(at: ChangedFormulas, values: Float64s) -> Float64s:
    z = at.at["m"] if at.norm.gate == "self" else at.rows("z")
    return np.where(z > LARGEST_EXP, np.nan, values)


def _rounded(kind: str, _: ChangedFormulas, values: Float64s) -> Float64s:
    return rounded(values, kind)


def _of_inputs(norm: "GroupedNorm") -> dict[str, Wrong]:
    """Return hypotheses about parameters and modulations."""
    table = {
        "gamma and beta are those of the column before": Wrong(
            inputs=partial(_other_columns, lambda each: np.roll(each, 1))
        ),
        "inputs are read as though they were contiguous": Wrong(inputs=_misread),
    }
    if norm.modulate:
        both = ("scale", "shift")
        table |= {
            "scale is used for 1 + scale": Wrong(
                inputs=lambda case: case.with_inputs(scale=case.scale.astype(np.float64) - 1)
            ),
            "the scale and the shift of the first row are used for all": Wrong(
                inputs=lambda case: case.with_inputs(
                    **{key: np.broadcast_to(case.rows[key][:1], case.scale.shape) for key in both}
                )
            ),
            "scale and shift are exchanged": Wrong(
                inputs=lambda case: case.with_inputs(scale=case.shift, shift=case.scale)
            ),
        }
        for kind in ("bfloat16", "float16"):
            table[f"scale and shift are rounded to {kind}"] = Wrong(
                inputs=partial(_rounded_modulation, kind)
            )
    if norm.modulate == "sample":
        table["scale and shift are those of sample row % N, not of row // T"] = Wrong(
            {name: partial(_of_other_samples, name) for name in ("scale", "shift")}
        )
    return table


def _of_other_samples(name: str, at: ChangedFormulas, right: Float64s) -> Float64s:
    samples = at.case.rows[name].astype(np.float64)
    return samples[np.arange(len(right)) % len(samples)]


def _of_gradients(norm: "GroupedNorm", output: str) -> dict[str, Wrong]:
    """Return hypotheses about factors that gradients are without."""
    table = {}
    if norm.modulate and output not in ROW_SUMS:
        table["it is without the factor 1 + scale"] = Wrong({"e": lambda at, _: at.at["d"]})
    if norm.parameters and output == "dscale":
        table[f"it is without {' and '.join(norm.parameters)}"] = Wrong(
            {"dscale": lambda at, _: at.at["d"] * at.at["xhat"]}
        )
    if norm.gate_first and output == "dgamma":
        table["it has xhat of x without the gate"] = Wrong({"terms": _of_ungated})
    return table


def _of_ungated(at: ChangedFormulas, _: Float64s) -> Float64s:
    x = at.rows("x")
    c = x - x.mean(axis=1, keepdims=True) if at.norm.centred else x
    return np.asarray(at.at["e"] * c * at.at["r"])


def _other_columns(change: Callable[[Any], Any], case: Case) -> Case:
    names = [key for key in ("gamma", "beta") if case.inputs.get(key) is not None]
    return case.with_inputs(**{key: change(case.inputs[key]) for key in names})


def _misread(case: Case) -> Case:
    return case.with_inputs(
        **{key: read_without_gaps(case, rows, False) for key, rows in case.rows.items()}
    )


def _rounded_modulation(kind: str, case: Case) -> Case:
    keys = ("scale", "shift")
    wide = {key: rounded(case.rows[key].astype(np.float64), kind) for key in keys}
    return case.with_inputs(**wide)


def _of_sums(norm: "GroupedNorm", output: str) -> dict[str, Wrong]:
    """Return hypotheses about sums over rows, or over the units of a row."""
    if output in ROW_SUMS:
        return {
            "it is that of the last row of a sample": Wrong(sums=lambda _, by: by[..., -1]),
            "it is that of the first row of a sample": Wrong(sums=lambda _, by: by[..., 0]),
            "it is summed in the type of x": Wrong(sums=_units_in_type),
        }
    table = {
        "it is that of the first row": Wrong(sums=lambda _, by: by[0].sum(axis=1)),
        "it is summed in the type of x, row by row": Wrong(sums=_rows_in_type),
    }
    if norm.heads:
        table |= {
            "it is that of the last head": Wrong(sums=lambda _, by: by[..., -1].sum(axis=0)),
            "it is that of the first head": Wrong(sums=lambda _, by: by[..., 0].sum(axis=0)),
        }
    if norm.spatial:
        table["the second half of the places of a channel is left out"] = Wrong(
            sums=lambda _, by: by[..., : max(1, by.shape[2] // 2)].sum(axis=(0, 2))
        )
    return table


def _rows_in_type(case: Case, by_column: Float64s) -> Float64s:
    return accumulate_rows(rounded(by_column.sum(axis=2), case.dtype), case.dtype)


def _units_in_type(case: Case, by_column: Float64s) -> Float64s:
    rows, width, count = by_column.shape
    terms = rounded(by_column, case.dtype).transpose(2, 0, 1).reshape(count, rows * width)
    return accumulate_rows(terms, case.dtype).reshape(rows, width)
