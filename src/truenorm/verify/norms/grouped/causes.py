"""Hypotheses about wrong kernels of grouped norms.

Most hypotheses are mutants of the formula. The hypotheses of this file are about the division of
rows, the order of numbers in memory, and the options of a norm.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.causes import Cause
from truenorm.verify.formulas.mutants import Run, changed
from truenorm.verify.norms.changes import R
from truenorm.verify.norms.grouped.derived import axes_of, derived_of, mutated, other_axes, shaped
from truenorm.verify.norms.grouped.formulas import (
    Steps,
    given_of,
    graph_of,
    key_of,
)
from truenorm.verify.norms.hypotheses import read_without_gaps
from truenorm.verify.norms.norm import Geometry, Norm
from truenorm.verify.operation import Case, Hypothesis
from truenorm.verify.types import Float64s

Inputs = Callable[[Case], Case]
Divide = Callable[[Geometry], Geometry]


@cache
def hypotheses_of(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return the hypotheses about an output by their causes."""
    return {cause: each for table in tables_of(norm, output) for cause, each in table.items()}


def tables_of(norm: Norm, output: str) -> list[dict[Cause, Hypothesis]]:
    """Return the tables of hypotheses; no words are in two of them, or one would be lost."""
    written = (_of_division, _of_statistics, _of_options, _of_inputs)
    return [table(norm, output) for table in (*written, derived_of)]


def unchanged_of(norm: Norm, output: str) -> Hypothesis:
    """Return the output by the formula."""
    return partial(mutated, norm, output, None)


class _At(NamedTuple):
    """A case, the division of its rows, and its right results."""

    norm: Norm
    case: Case
    geometry: Geometry
    graph: Steps
    run: Run

    def right(self, name: str) -> Any:
        """Return the numbers of a step."""
        return self.run.right(self.graph[name])

    def units(self, rows: Float64s) -> Float64s:
        """Return rows as (rows, units of a row, elements of a unit)."""
        return self.geometry.units_of(rows).reshape(len(rows), self.geometry.count, -1)

    def mean(self, units: Float64s) -> Any:
        """Return the mean of each unit, or 0 without one."""
        return units.mean(axis=-1, keepdims=True) if self.norm.centred else 0 * units[..., :1]


ChangeAt = Callable[[_At, Any], Any]
"""Returns changed numbers of a step, given the right numbers."""


def _wrong(
    norm: Norm,
    output: str,
    inputs: Inputs = lambda case: case,
    divide: Divide = lambda geometry: geometry,
    **changes: ChangeAt,
) -> Hypothesis:
    """Return a hypothesis of changed inputs, another division of rows, or changed steps."""

    def result(right: Case) -> Float64s:
        case = inputs(right)
        geometry = divide(norm.geometry(case))
        graph = graph_of(norm, key_of(norm, case, geometry))
        run = Run(given_of(norm, case, geometry), case.dtype)
        at = _At(norm, case, geometry, graph, run)
        hooks = {
            graph[name]: changed(partial(_at_run, change, at))
            for name, change in changes.items()
            if name in graph
        }
        return shaped(norm, output, case, run.result(graph[output], hooks))

    return result


def _at_run(change: ChangeAt, at: _At, _: Run, right: Any) -> Any:
    return change(at, right)


def _of_division(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return hypotheses about how rows are divided into units."""
    wrong = partial(_wrong, norm, output)
    division = norm.geometry_of(1, "as-1x1")
    if not division.units:
        return {}
    plural = {"t": "heads" if norm.heads else "rows", "s": "places"}.get(division.units, "groups")
    plural = "channels" if norm.name == "instance_norm" else plural
    table = {
        Cause("no-units", f"{plural} are ignored"): wrong(
            divide=lambda each: replace(each, units="")
        ),
        Cause(
            "padding-of-next-unit-in-square",
            f"squares of the next of the {plural} are counted, up to a power of two",
        ): wrong(w=_with_next_unit),
    }
    if norm.groups > 1:
        table |= {
            Cause("twice-as-many-groups", "there are twice as many groups"): wrong(
                divide=_twice_the_groups
            ),
            Cause(
                "groups-interleaved", "groups are interleaved: column c is in group c % G"
            ): wrong(divide=_interleaved),
            Cause(
                "parameters-of-first-column-of-group",
                "gamma and beta are those of the first column of a group",
            ): wrong(
                partial(_other_columns, norm, lambda each: np.repeat(each[:, :1], each.shape[1]))
            ),
        }
    if norm.spatial:
        words = "gamma and beta are read at offset % C, as though channels were the last axis"
        cause = Cause("parameters-of-channels-last", words)
        table[cause] = wrong(gamma=_channels_last, beta=_channels_last)
    if norm.spatial and norm.groups > 1 and output == "dgamma":
        words = "dgamma has the mean and 1/sqrt(... + eps) of group c % G, not of c // (C/G)"
        table[Cause("dgamma-of-other-groups", words)] = wrong(dgamma_terms=_of_other_groups)
    return table


def _of_statistics(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return hypotheses about a variance, or a mean that is subtracted, over other axes."""
    division, table = norm.geometry_of(1, "as-1x1"), dict[Cause, Hypothesis]()
    if norm.centred and norm.share == 1:
        axes = axes_of(norm, division.axes)
        for over, words in other_axes(axes, division.without(division.units)):
            variance, centred = partial(_variance_over, over), partial(_centred_over, over)
            cause = Cause(f"variance-along({over})", f"the variance is {words}")
            table[cause] = _wrong(norm, output, w=variance)
            cause = Cause(f"centred-along({over})", f"the mean that is subtracted is {words}")
            table[cause] = _wrong(norm, output, xhat=centred)
    return table


def _variance_over(axes: tuple[int, ...], at: _At, _: Float64s) -> Any:
    return at.right("u").var(axis=axes, keepdims=True)


def _centred_over(axes: tuple[int, ...], at: _At, _: Float64s) -> Any:
    u = at.right("u")
    return (u - u.mean(axis=axes, keepdims=True)) * at.right("r")


def _with_next_unit(at: _At, w: Float64s) -> Any:
    """Add squares of the first elements of the next unit, in lanes beyond a unit."""
    x, size = at.units(at.norm.normalized(at.case)), at.geometry.unit_size
    over = x[:, 1:, : (1 << (size - 1).bit_length()) - size] - at.mean(x)[..., :-1, :]
    more = np.zeros((*x.shape[:2], 1))
    more[:, :-1] = (over**2).sum(axis=2, keepdims=True) / size
    return w + more.reshape(w.shape)


def _inner(geometry: Geometry) -> str:
    """Return the axis of the columns of a group."""
    return "c" if "c" in geometry.sizes else "d"


def _twice_the_groups(geometry: Geometry) -> Geometry:
    inner, sizes = _inner(geometry), geometry.sizes
    if sizes[inner] % 2:
        return geometry
    return replace(geometry, sizes={**sizes, "g": 2 * sizes["g"], inner: sizes[inner] // 2})


def _interleaved(geometry: Geometry) -> Geometry:
    swapped = str.maketrans({"g": _inner(geometry), _inner(geometry): "g"})
    axes, columns = (names.translate(swapped) for names in (geometry.axes, geometry.columns))
    return replace(geometry, axes=axes, columns=columns)


def _other_columns(norm: Norm, change: Callable[[Any], Any], case: Case) -> Case:
    """Change parameters, given as one row for each group."""
    given = {key: case.inputs.get(key) for key in ("gamma", "beta")}
    return case.with_inputs(
        **{key: change(v.reshape(norm.groups, -1)) for key, v in given.items() if v is not None}
    )


def _channels_last(at: _At, columns: Float64s) -> Float64s:
    return np.resize(columns.reshape(-1), (1, *at.geometry.shape(at.geometry.axes)))


def _of_other_groups(at: _At, terms: Float64s) -> Any:
    """Return the terms of dgamma with the mean and r of other groups."""
    x = at.units(at.norm.normalized(at.case))
    groups, channels = at.geometry.count, at.geometry.width
    other = np.arange(channels) % groups
    mean, r = at.mean(x)[:, other], at.right("r").reshape(len(x), groups, 1)[:, other]
    xhat = (x.reshape(len(x), channels, -1) - mean) * r
    return at.right("e") * xhat.reshape(terms.shape)


def _of_options(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return hypotheses about the options of a norm: the gate, the variance, a residual."""
    wrong, table = partial(_wrong, norm, output), dict[Cause, Hypothesis]()
    if norm.gates_by_z:
        other = {"silu": "sigmoid", "sigmoid": "silu"}[norm.activation]
        moved = norm.activation + ("" if norm.gate_first else "-first")
        place = "after the norm" if norm.gate_first else "first"
        gates = {
            Cause("gate-moved", f"the gate comes {place}"): moved,
            Cause(
                f"gate-is({other})", f"the gate is {other}, not {norm.activation}"
            ): norm.gate.replace(norm.activation, other),
        }
        table |= {
            cause: _wrong(norm.with_options(gate=gate), output) for cause, gate in gates.items()
        }
    if norm.gate_first and output == "dgamma":
        cause = Cause("xhat-without-gate", "it has xhat of x without the gate")
        table[cause] = wrong(dgamma_terms=_of_ungated)
    if norm.gate == "self":
        cause = Cause("slope-at-xhat", "the derivative of silu is taken at xhat")
        table[cause] = wrong(slope=_slope_at_xhat)
    if norm.adds and not norm.gate_first:
        cause = Cause("r-without-residual", f"{R} is that of x without the residual")
        table[cause] = wrong(w=_without_residual)
    if norm.share < 1:
        table |= {
            Cause("all-columns-in-variance", "all columns count for the variance"): _wrong(
                norm.with_options(variance=""), output
            ),
            Cause(
                "square-over-all-columns", "the sum of squares is divided by all columns"
            ): wrong(w=_over_all_columns),
            Cause(
                "projection-in-all-columns", "xhat*mean(g*xhat) is subtracted in all columns"
            ): wrong(projected=lambda at, _: at.right("xhat") * at.right("along")),
        }
    return table


def _of_ungated(at: _At, terms: Float64s) -> Any:
    x = at.units(at.norm.normalized(at.case))
    c = at.geometry.rows_of((x - at.mean(x)).reshape(-1, at.geometry.unit_size))
    return at.right("e") * c.reshape(terms.shape) * at.right("r")


def _slope_at_xhat(at: _At, _: Float64s) -> Float64s:
    xhat = at.right("xhat")
    sigma = 1 / (1 + np.exp(-xhat))
    return np.asarray(sigma * (1 + xhat * (1 - sigma)))


def _without_residual(at: _At, w: Float64s) -> Any:
    x = at.units(at.case.rows["x"].astype(np.float64))
    counted = at.norm.counted(x.shape[2])
    sums = ((x - at.mean(x))[..., :counted] ** 2).sum(axis=2)
    return (sums / counted).reshape(w.shape)


def _over_all_columns(at: _At, w: Float64s) -> Any:
    size = at.geometry.unit_size
    return w * (at.norm.counted(size) / size)


def _of_inputs(norm: Norm, output: str) -> dict[Cause, Hypothesis]:
    """Return hypotheses about where inputs are read."""
    wrong = partial(_wrong, norm, output)
    table = {
        Cause("read-without-gaps", "inputs are read as though they were contiguous"): wrong(
            _misread
        )
    }
    if norm.modulate == "sample":
        words = "scale and shift are those of sample row % N, not of row // T"
        cause = Cause("modulation-of-other-samples", words)
        table[cause] = wrong(scale=_of_other_samples, shift=_of_other_samples)
    return table


def _misread(case: Case) -> Case:
    return case.with_inputs(
        **{key: read_without_gaps(case, rows, False) for key, rows in case.rows.items()}
    )


def _of_other_samples(at: _At, right: Float64s) -> Any:
    samples, units = right.reshape(len(right), -1), at.geometry.count
    return samples[np.arange(len(right) * units) % len(right)].reshape(len(right), units, -1)
