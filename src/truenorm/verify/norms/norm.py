"""Norms as operations of the judge: their inputs, outputs, and the units of their rows.

With c the deviations of a unit from its mean, or the unit itself if no mean is subtracted,
y = gain*c/sqrt(mean(c^2) + eps) + beta. Options add a residual, divide a row into units, multiply
by a gate, modulate, or quantize y.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.norms.options import OF_UNITS, SPATIAL, Options, share_of
from truenorm.verify.norms.quant import Quant
from truenorm.verify.operation import (
    AS_SHAPE,
    Case,
    Input,
    Knowledge,
    Operation,
    Output,
    Predictor,
    Scales,
    require_support,
    shape_of_layout,
)
from truenorm.verify.types import FORMATS, Array, Float64s

SHAPES_AND_LAYOUTS = ("ranks", "strides", "padded-rows", "layouts-of-gradients")
PARTIAL_GROUPS = "partial-groups"


@dataclass(frozen=True)
class Geometry:
    """Axes of a row by name, the slowest first, separated by spaces.

    Attributes
    ----------
    axes : str
        The axes of a row: ``g c s`` are groups, the channels of a group, and the places of a
        channel.
    units : str
        The axes that number the units.
    columns : str
        The axes that number the elements of gamma.
    sizes : mapping of str to int
        The size of each axis.

    Examples
    --------
    >>> two_groups = Geometry("g c s", "g", "g c", {"g": 2, "c": 1, "s": 2})
    >>> two_groups.units_of(np.arange(4)[np.newaxis]).tolist()
    [[0, 1], [2, 3]]
    >>> two_groups.shape(two_groups.columns)
    (2, 1, 1)
    """

    axes: str
    units: str
    columns: str
    sizes: Mapping[str, int]

    def shape(self, names: str) -> tuple[int, ...]:
        """Return the sizes of some axes, and 1 for all others."""
        kept = names.split()
        return tuple(self.sizes[name] if name in kept else 1 for name in self.axes.split())

    def without(self, names: str) -> tuple[int, ...]:
        """Return the numbers of all other axes; rows are axis 0."""
        left_out = names.split()
        numbered = enumerate(self.axes.split(), 1)
        return tuple(number for number, name in numbered if name not in left_out)

    @property
    def count(self) -> int:
        """The units of a row."""
        return prod(self.shape(self.units))

    @property
    def unit_size(self) -> int:
        """The elements of a unit."""
        return prod(self.shape(self.axes)) // max(self.count, 1)

    @property
    def width(self) -> int:
        """The elements of gamma."""
        return prod(self.shape(self.columns))

    @property
    def _unit_first(self) -> tuple[int, ...]:
        """The axes: rows, the axes of units, and the axes within a unit."""
        within = self.without(self.units)
        return (0, *(each for each in self.without("") if each not in within), *within)

    def units_of(self, rows: Array) -> Array:
        """Return rows of shape (R, D) as (R times units, elements of a unit)."""
        moved = rows.reshape(-1, *self.shape(self.axes)).transpose(self._unit_first)
        return moved.reshape(-1, self.unit_size)

    def rows_of(self, units: Array) -> Array:
        """Return units as rows: the inverse of `units_of`."""
        shape = (-1, *self.shape(self.axes))
        moved = units.reshape([shape[axis] for axis in self._unit_first])
        return moved.transpose(np.argsort(self._unit_first)).reshape(len(moved), -1)


class Judging(NamedTuple):
    """The functions that judge a kind of norm: plain, of units, or quantized.

    Attributes
    ----------
    cases, exact, scales : callable
        See `Operation`; the first argument is the norm.
    knowledge : callable
        Returns the `Knowledge` of a norm.
    folder, sources, predictors
        See `Operation.folder`, `Operation.shared_sources` and `Operation.predictors`.
    expected_type : type, optional
        See `Operation.expected_type`.
    """

    cases: Callable[["Norm", str, str, int], Iterable[Case]]
    exact: Callable[["Norm", Case], dict[str, Float64s]]
    scales: Callable[["Norm", Case, Mapping[str, Float64s]], Scales]
    knowledge: Callable[["Norm"], Knowledge]
    folder: Path | None = None
    sources: tuple[Path, ...] = ()
    predictors: Callable[["Norm"], dict[str, Predictor]] = lambda _: {}
    expected_type: Any = None


class Norm(Operation):
    """A norm with its options.

    `truenorm.verify.norm` documents the options and makes norms.

    Attributes
    ----------
    options : Options
    base : Norm
        The norm without units, gates, modulation and quantization.
    plain : Norm
        Layer norm or RMSNorm without options, whose cases other norms adapt.
    parameters : tuple of str
        The names of gamma and beta, if there are any.
    parameter_type, result_type : str
        The type of parameters and of y, if it is not the type of x.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.norm("rms_norm", groups=4, gate="silu").title
    'RMS normalization, 4 groups, gate silu'
    """

    def __init__(
        self,
        options: Options,
        judging: Judging,
        base: "Norm | None" = None,
        plain: "Norm | None" = None,
    ) -> None:
        self.options, self._judging = options, judging
        self.base, self.plain = base or self, plain or self
        self.name, self.centred, self.adds = options.name, options.centred, options.adds
        self.has_units, self.is_quantized = options.has_units, options.quant is not None
        self.gain, self.sum = options.gain, options.sum
        self.eps, self.width = options.eps, options.width
        self.groups, self.heads = options.groups, options.heads
        self.over, self.modulate = options.over, options.modulate
        self.parameter_type, self.result_type = options.parameters, options.result
        has_beta = self.centred if options.beta is None else options.beta
        self.parameters: tuple[str, ...] = ("gamma", *(["beta"] if has_beta else []))
        self.parameters = self.parameters if options.gamma else ()
        self.spatial = self.name in SPATIAL
        self.channels_last = self.reshapes = options.channels == "last"
        self.gate = options.gate
        self.gate_first = self.gate.endswith("-first")
        self.gates_by_z = self.gate not in ("", "self")
        self.activation = "sigmoid" if self.gate.startswith("sigmoid") else "silu"
        self.share = share_of(options.variance)
        self.rounded_once = frozenset({"sum"} if self.adds else ())
        self.inputs = self._inputs()
        self.outputs = self._outputs()
        self.extensions = self._extensions()
        self.not_for_commands = frozenset(self.extensions)
        if not self.has_units and not self.is_quantized:
            of_parameters = ("float32-parameters", *(f"no-{each}" for each in self.parameters))
            self.not_for_commands = frozenset((*SHAPES_AND_LAYOUTS, *of_parameters))
        self.unsupported = self._unsupported()
        self.variant = self._variant()
        self.folder, self.shared_sources = judging.folder, judging.sources
        self.case_file = f"{judging.folder.name}/cases.toml" if judging.folder else ""
        self.expected_type = judging.expected_type
        self.predictors = judging.predictors(self)
        self.knowledge = judging.knowledge(self)

    def with_options(self, **options: Any) -> "Norm":
        """Return the norm with other options of the same kind."""
        return Norm(replace(self.options, **options), self._judging, self.base, self.plain)

    def _inputs(self) -> tuple[Input, ...]:
        modulation = ("scale", "shift") if self.modulate else ()
        gradients = ("dy", *(["dsum"] if self.adds else [])) if not self.is_quantized else ()
        setting = self.quant.setting if self.is_quantized else ""
        return (
            *(Input(name, "data") for name in self._data),
            *(Input(name, "parameter") for name in self.parameters),
            *(Input(name, "data") for name in modulation),
            *(Input(name, "gradient") for name in gradients),
            *([Input(setting, "setting")] if setting else []),
        )

    @property
    def _data(self) -> tuple[str, ...]:
        """The names of inputs that consist of rows of x."""
        return ("x", *(["residual"] if self.adds else []), *(["z"] if self.gates_by_z else []))

    def _outputs(self) -> tuple[Output, ...]:
        sums = [Output("sum", like="x")] if self.adds else []
        if self.is_quantized:
            return (
                Output("codes", like="x"),
                *([Output("scale", like="x")] if self.quant.scale_type else []),
                *([Output("amax", like="gamma")] if self.quant.amax else []),
                *sums,
            )
        differentiated = (each.name for each in self.inputs if each.role != "gradient")
        return (
            Output("y", like="x"),
            *sums,
            *(Output(f"d{name}", like=name, backward=True) for name in differentiated),
        )

    def _extensions(self) -> dict[str, str]:
        """Return the extensions and their meaning."""
        rows = " and ".join(each.name for each in self.inputs if each.role != "parameter")
        padded_rows = f"{rows} are views with gaps between rows, as slices of a wider array"
        if self.is_quantized:
            partial = f"the last group of a row has fewer than {self.quant.group} elements"
            is_possible = self.quant.group and self.quant.code.name != "e2m1"
            return {PARTIAL_GROUPS: partial} if is_possible else {}
        if self.has_units:
            extensions = {"one-element-units": "a unit has one element"}
            if not self.reshapes and (self.spatial or self.over == "channels"):
                extensions["channels-last"] = (
                    "the channels of x and dy are the last axis in memory"
                )
            elif not self.reshapes and not self.has_axes:
                extensions["padded-rows"] = padded_rows
            return extensions
        gradients = "dy or dsum has" if self.adds else "dy has"
        sums = " and ".join(f"d{name}" for name in self.parameters)
        extensions = {
            **{f"no-{name}": f"{name} is None; d{name} is ignored" for name in self.parameters},
            "ranks": "x has one axis, or three",
            "strides": f"{rows} are views with gaps along the last axis",
            "padded-rows": padded_rows,
            "layouts-of-gradients": f"{gradients} another memory layout than x, or is read-only",
            "idle-rows": f"rows whose dy is zero change no bit of {sums}",
            "zero-eps": f"eps is 0, and no row is {'constant' if self.centred else 'zero'}",
            "tiny-eps": "eps is a number that float32 does not have",
            "empty": "x has no rows",
        }
        if not self.parameter_type:
            names = " and ".join(self.parameters)
            are = "is" if len(self.parameters) == 1 else "are"
            extensions["float32-parameters"] = f"{names} {are} float32 whatever x is"
        return extensions

    def _unsupported(self) -> dict[str, str]:
        """Return, by use that this norm does not support, the norm that the use needs."""
        reasons: dict[str, str] = {}
        if self.has_units:
            without = f"a norm without {', '.join(f'{name}=' for name in OF_UNITS)}"
            reasons |= dict.fromkeys(("bound", "enclosures"), without)
        if self.is_quantized:
            without = "a norm without quant="
            reasons |= dict.fromkeys(("bound", "enclosures", "files"), without)
        if self.has_axes:
            reasons["files"] = "a norm of rows, not of a shape such as (N, C, S)"
        if self.reshapes:
            reasons |= dict.fromkeys(("recording", "score"), "a norm without channels=last")
        return reasons

    def _variant(self) -> str:
        first = self.name if self.has_units else "add" if self.adds else ""
        return ",".join([first, *map("=".join, self.options.texts.items())])

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name for people, with its options."""
        base = "layer normalization" if self.centred else "RMS normalization"
        base = self.name.replace("_", " ") if self.spatial else base
        texts = {
            "gain": f"{self.gain} gain",
            "beta": "with beta" if "beta" in self.parameters else "without beta",
            "parameters": f"{self.parameter_type} parameters",
            "result": f"y in {self.result_type}",
            "sum": f"{self.sum} sum",
            "eps": f"eps {self.options.texts.get('eps')}",
            "width": f"at most {self.width} wide",
            "groups": f"{self.groups} groups",
            "heads": f"{self.heads} heads",
            "gate": f"gate {self.gate}",
            "modulate": f"modulated by {self.modulate}",
            "variance": f"variance of {self.options.variance}",
            "gamma": "without gamma",
            "over": "over channels",
            "channels": "channels last",
            "quant": f"quantized to {self.quant.type if self.is_quantized else ''}",
            "amax": "with amax",
        }
        name = ("residual add and " if self.adds else "") + base
        given = self.options.texts.items()
        return ", ".join([name, *(texts.get(key, f"{key} {text}") for key, text in given)])

    @property
    def condition(self) -> str:  # type: ignore[override]
        """The formula of kappa."""
        row = "x + residual" if self.adds else "x"
        unit = " of a unit" if self.has_units else ""
        return f"rms({row})/sqrt(var + eps){unit}" if self.centred else "1"

    @property
    def condition_description(self) -> str:  # type: ignore[override]
        """A sentence about kappa."""
        if not self.centred:
            return "κ is 1: no mean is subtracted, so that no row is harder than another."
        row = "x + residual" if self.adds else "x"
        return f"κ = rms({row})/√(var + ε) says how much of a row is mean."

    @property
    def spec(self) -> str:
        """The name and the options that are not defaults, joined by commas."""
        return ",".join([self.name, *map("=".join, self.options.texts.items())])

    @property
    def quant(self) -> Quant:
        """How y is quantized; raise ValueError unless `is_quantized`."""
        if self.options.quant is None:
            raise ValueError(f"expected a norm with quant=, got {self.spec}")
        return self.options.quant

    @property
    def has_axes(self) -> bool:
        """True if a row of x has axes of its own, as in (N, C, S) or (N, heads, D)."""
        with_axes = self.spatial or self.heads > 0
        return with_axes or self.modulate == "sample" or self.over == "channels"

    def type_of(self, output: str, like: str) -> str:
        """Return the type of an output, given the type of the input it is like."""
        if self.is_quantized:
            types = {"codes": self.quant.code.name, "scale": self.quant.scale_type}
            return {**types, "amax": "float32"}.get(output, like)
        return self.result_type if output == "y" and self.result_type else like

    def result_shapes(self, output: str, rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that a result may have, given the shape of x; the first is named."""
        if self.is_quantized:
            return _quantized_shapes(self.quant, output, rows)
        like = self._like(output)
        if like in ("scale", "shift"):
            return ((rows[0], rows[-1]),)
        return ((self.parameter_size(rows),),) if like in self.parameters else (rows,)

    def _like(self, output: str) -> str:
        return {each.name: each.like for each in self.outputs}[output]

    def parameter_size(self, rows: Sequence[int]) -> int:
        """Return the number of elements of gamma, given the shape of x as the judge has it."""
        of_channels = (self.spatial or self.over == "channels") and len(rows) > 2
        return int(rows[1] if of_channels else rows[-1])

    def give(self, name: str, array: Array, shape: tuple[int, ...]) -> Array:  # noqa: ARG002
        """Return x with the channels last."""
        if self.channels_last and name not in self.parameters:
            return np.moveaxis(array, 1, -1)
        return array

    def take(self, output: str, result: Array, shape: tuple[int, ...]) -> Array:
        """Return a result as the judge has it: the inverse of `give`."""
        if not self.channels_last or self._like(output) in self.parameters:
            return result
        expected = (shape[0], *shape[2:], shape[1])
        if result.shape != expected:
            raise TypeError(f"{output} must have the shape {expected}, got {result.shape}")
        return np.moveaxis(result, -1, 1)

    def counted(self, size: int) -> int:
        """Return the columns of a unit that count for the mean square."""
        return max(1, int(size * self.share))

    def geometry(self, case: Case) -> Geometry:
        """Return how the rows of a case are divided."""
        return self.geometry_of(case.shape[1], case.layout)

    def geometry_of(self, size: int, layout: str) -> Geometry:
        """Return how rows of a size and a layout such as ``as-12x25`` are divided."""
        first = shape_of_layout(layout)[0] if layout.startswith(AS_SHAPE) else 1
        rest = size // first
        if self.spatial:
            groups = first if self.name == "instance_norm" else self.groups
            sizes = {"g": groups, "c": first // groups, "s": rest}
            return Geometry("g c s", "g", "g c", sizes)
        if self.over == "channels":
            return Geometry("c s", "s", "c", {"c": first, "s": rest})
        if self.heads or self.modulate == "sample":
            return Geometry("t d", "t", "d", {"t": first, "d": rest})
        if self.groups > 1:
            sizes = {"g": self.groups, "d": size // self.groups}
            return Geometry("g d", "g", "g d", sizes)
        return Geometry("d", "", "d", {"d": size})

    def normalized(self, case: Case) -> Float64s:
        """Return the rows that are normalized, in float64."""
        if not self.adds:
            rows: Float64s = case.x.astype(np.float64)
        elif self.sum == "rounded":
            rows = (case.x + case.residual).astype(np.float64)
        else:
            rows = case.x.astype(np.float64) + case.residual.astype(np.float64)
        return rows

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterable[Case]:
        """Return the cases of a seed, then the cases that do not depend on the seed."""
        self.require_type(dtype)
        return self._judging.cases(self, dtype, level, seed)

    def require_type(self, dtype: str) -> None:
        """Raise ValueError if rows cannot have a type."""
        if self.sum == "unrounded" and FORMATS[dtype].precision > 11:
            raise ValueError(f"sum='unrounded' needs a type of 16 bits; got {dtype}")

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return all outputs, and r and xhat of each row; of a quantized norm, enclosures of y."""
        return self._judging.exact(self, case)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> Scales:
        """Return the natural scales."""
        return self._judging.scales(self, case, exact)


def _quantized_shapes(
    quant: Quant, output: str, rows: tuple[int, ...]
) -> tuple[tuple[int, ...], ...]:
    *leading, size = rows
    if output == "codes" and quant.code.name == "e2m1":
        return (*leading, -(-size // 2)), rows
    if output == "scale":
        groups = quant.groups(size)
        return ((*leading, groups), *([] if groups > 1 else [tuple(leading)]))
    return ((1,), ()) if output == "amax" else (rows,)


def require_norm(operation: Operation, what: str, use: str = "") -> Norm:
    """Return an operation that is a norm; raise ValueError unless it supports a use.

    `what` is the function or the command that needs it; see `Operation.unsupported`.
    """
    require_support(operation, use, what)
    if not isinstance(operation, Norm):
        raise ValueError(f"{what} needs a result of truenorm.verify.norm; got {operation.spec}")
    return operation
