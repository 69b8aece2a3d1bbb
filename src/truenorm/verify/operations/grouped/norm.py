"""Grouped, gated and modulated norms as operations of the judge."""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import prod
from typing import Any, Literal, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.formula.arithmetic import flint
from truenorm.verify.operation import (
    AS_SHAPE,
    Case,
    Clues,
    Hypothesis,
    Input,
    Operation,
    Output,
    RecipeResult,
    Results,
    RoundedResult,
    shape_of_layout,
)
from truenorm.verify.operations.grouped.cases import grouped_cases
from truenorm.verify.operations.grouped.causes import hypotheses_of
from truenorm.verify.operations.grouped.formulas import exact_answers
from truenorm.verify.operations.grouped.geometry import Geometry
from truenorm.verify.operations.grouped.recipes import recipe_names, recipe_results
from truenorm.verify.operations.grouped.scales import GroupedScales
from truenorm.verify.operations.norms import Norm
from truenorm.verify.operations.recipes import shows_recipe
from truenorm.verify.oracle import AnswerBounds, Expected
from truenorm.verify.types import Array, Float64s

SpatialName = Literal["group_norm", "instance_norm"]
SPATIAL = get_args(SpatialName)
GATES = ("silu", "sigmoid", "silu-first", "sigmoid-first", "self")
MODULATIONS = ("sample", "row")
DIVISORS = ("mean", "sum")
OVER = ("row", "channels")
CHANNELS = ("first", "last")
MOST_AXES = 4
OPTIONS = (
    *("groups", "heads", "gate", "modulate", "variance", "divisor", "gamma", "over"),
    *("axes", "channels"),
)


def refuse_grouped(operation: Operation, what: str) -> None:
    """Raise ValueError for a grouped, gated or modulated norm."""
    if isinstance(operation, GroupedNorm):
        raise ValueError(
            f"{what} needs a norm without {', '.join(f'{name}=' for name in OPTIONS)}; "
            f"got {operation.spec}"
        )


def refuse_axes(operation: Operation, what: str) -> None:
    """Raise ValueError for a norm whose rows of x have axes of their own."""
    if isinstance(operation, GroupedNorm) and operation.has_axes:
        raise ValueError(
            f"{what} holds x as rows of D, and {operation.spec} needs a shape such as (N, C, S): "
            "give a Python function"
        )


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


class GroupedOptions(TypedDict, total=False):
    """The options of `GroupedNorm` beside those of `Norm`."""

    groups: int
    heads: int
    gate: str
    modulate: str
    variance: str
    divisor: str
    gamma: bool
    over: str
    axes: int
    channels: str


class GroupedNorm(Norm):
    """A norm of units: parts of a row that share a mean and an r.

    Parameters
    ----------
    name : str
        As for `Norm`; or ``group_norm`` and ``instance_norm``, layer norms of groups of channels
        and of single channels, for x of shape (N, C, ...).
    groups : int
        The number of groups of a row, each of which is a unit. gamma has a number for each column.
    heads : int
        The number of heads of a row, each of which is a unit. gamma has a number for each column
        of a head. x has the shape (N, heads, D).
    gate : str
        ``silu`` and ``sigmoid`` multiply y by a function of z; with ``-first``, x. ``self`` is the
        silu of y.
    modulate : str
        ``sample`` and ``row``: y*(1 + scale) + shift. A sample has one scale for all its units,
        and x has the shape (N, T, D); a row is a unit.
    variance : str
        The part of a unit, from its first column on, that counts for the mean square, as ``3/4``.
    divisor : str
        ``mean``: squares are averaged. ``sum``: they are summed, as in an L2 norm.
    gamma : bool
        Whether there are gamma and beta.
    over : str
        ``row``, or ``channels``: a unit is the channels at one place of x (N, C, ...).
    axes : int
        The number of normalized axes: x has the shape (N, C, H, W) with 3, and gamma (C, H, W).
    channels : str
        For group and instance norm. ``first``: x has the shape (N, C, ...); ``last``: (N, ..., C).
    **options
        Those of `Norm`.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> tv.norm("rms_norm", groups=4, gate="silu").title
    'RMS normalization, 4 groups, gate silu'
    """

    expected_type = GroupedExpected

    def __init__(
        self,
        name: str,
        *,
        groups: int = 1,
        heads: int = 0,
        gate: str = "",
        modulate: str = "",
        variance: str = "",
        divisor: str = "mean",
        gamma: bool = True,
        over: str = "row",
        axes: int = 1,
        channels: str = "first",
        **options: Any,
    ) -> None:
        base: Any = "layer_norm" if name in SPATIAL else name
        super().__init__(base, **options)
        self.base = Norm(base, **options)
        for argument, value, choices in (
            ("gate", gate, ("", *GATES)),
            ("modulate", modulate, ("", *MODULATIONS)),
            ("divisor", divisor, DIVISORS),
            ("over", over, OVER),
            ("channels", channels, CHANNELS),
        ):
            if value not in choices:
                names = ", ".join(filter(None, choices))
                raise ValueError(f"{argument} must be one of {names}; got {value!r}")
        self.name: Any = name
        self.spatial = name in SPATIAL
        self.groups, self.heads, self.over, self.axes = groups, heads, over, axes
        self.channels_last = channels == "last"
        self.reshapes = self.channels_last or axes > 1
        self.gate, self.modulate, self.divisor = gate, modulate, divisor
        self.gate_first = gate.endswith("-first")
        self.gates_by_z = gate not in ("", "self")
        self.activation = "sigmoid" if gate.startswith("sigmoid") else "silu"
        self.share = _share(variance)
        self._check(variance)
        self.parameters = self.parameters if gamma else ()
        given = {
            "groups": str(groups) if groups > 1 else "",
            "heads": str(heads) if heads else "",
            "gate": gate,
            "modulate": modulate,
            "variance": variance,
            "divisor": divisor if divisor != "mean" else "",
            "gamma": "" if gamma else "false",
            "over": over if over != "row" else "",
            "axes": str(axes) if axes > 1 else "",
            "channels": channels if self.channels_last else "",
        }
        self.own_options = {key: value for key, value in given.items() if value}
        self.options = {**self.options, **self.own_options}
        self.variant = ",".join([self.name, *map("=".join, self.options.items())])
        self.case_file, self.folder, self.predictors = "", None, {}
        self.recipe_names: Mapping[str, str] = recipe_names(self)
        self.inputs, self.outputs = self._grouped_signature()
        self.extensions = self._grouped_extensions()
        self.not_for_commands = frozenset(self.extensions)

    @property
    def has_axes(self) -> bool:
        """True if a row of x has axes of its own, as in (N, C, S) or (N, heads, D)."""
        with_axes = self.spatial or self.heads > 0 or self.axes > 1
        return with_axes or self.modulate == "sample" or self.over == "channels"

    def _check(self, variance: str) -> None:
        """Raise ValueError for options that exclude each other, or that need a package."""
        if self.gate:
            flint()
        several = [
            text
            for text, used in (
                ("groups", self.groups > 1 and not self.spatial),
                ("heads", self.heads > 0),
                ("modulate=sample", self.modulate == "sample"),
                ("over=channels", self.over == "channels"),
                ("axes", self.axes > 1),
                (self.name, self.spatial),
            )
            if used
        ]
        if len(several) > 1:
            raise ValueError(f"one of {' and '.join(several)} divides a row; got all of them")
        if self.name == "group_norm" and self.groups < 2:
            raise ValueError("group_norm needs groups of at least 2, such as groups=8")
        if self.name == "instance_norm" and self.groups > 1:
            raise ValueError(f"instance_norm has no groups; got groups={self.groups}")
        if self.groups < 1 or self.heads < 0:
            raise ValueError("groups and heads must be positive")
        if not 1 <= self.axes <= MOST_AXES:
            raise ValueError(f"axes must be from 1 to {MOST_AXES}; got {self.axes}")
        if self.axes > 1 and self.modulate:
            raise ValueError("axes is not for modulated norms; their scale has one axis")
        if self.channels_last and not self.spatial:
            raise ValueError(f"channels=last needs group_norm or instance_norm; got {self.name}")
        if variance and self.centred:
            raise ValueError(f"variance={variance} needs rms_norm: a mean is of all columns")

    def _grouped_extensions(self) -> dict[str, str]:
        """Return the extensions and their meaning."""
        extensions = {"one-element-units": "a unit has one element"}
        if self.channels_last or self.axes > 1:
            return extensions
        if self.spatial or self.over == "channels":
            extensions["channels-last"] = "the channels of x and dy are the last axis in memory"
        elif not self.has_axes:
            key = "padded-rows"
            extensions[key] = super()._extensions()[key]
        return extensions

    def _grouped_signature(self) -> tuple[tuple[Input, ...], tuple[Output, ...]]:
        """Return the inputs and the outputs."""
        adds, modulation = self.adds, ("scale", "shift") if self.modulate else ()
        data = ("x", *(["residual"] if adds else []), *(["z"] if self.gates_by_z else []))
        inputs = (
            *(Input(name, "data") for name in data),
            *(Input(name, "parameter") for name in self.parameters),
            *(Input(name, "data") for name in modulation),
            Input("dy", "gradient"),
            *([Input("dsum", "gradient")] if adds else []),
        )
        outputs = (
            Output("y", like="x"),
            *([Output("sum", like="x")] if adds else []),
            *(Output(f"d{name}", like=name, backward=True) for name in data),
            *(Output(f"d{name}", like=name, backward=True) for name in self.parameters),
            *(Output(f"d{name}", like=name, backward=True) for name in modulation),
        )
        return inputs, outputs

    @property
    def title(self) -> str:  # type: ignore[override]
        """The name for people, with its options."""
        base = self.name.replace("_", " ") if self.spatial else self.base.title
        texts = {
            "groups": f"{self.groups} groups",
            "heads": f"{self.heads} heads",
            "gamma": "without gamma",
            "gate": f"gate {self.gate}",
            "modulate": f"modulated by {self.modulate}",
            "variance": f"variance of {self.own_options.get('variance')}",
            "divisor": "squares summed",
            "over": "over channels",
            "axes": f"{self.axes} axes",
            "channels": "channels last",
        }
        return ", ".join([base, *(texts[key] for key in self.own_options)])

    @property
    def condition(self) -> str:  # type: ignore[override]
        """The formula of kappa."""
        return "rms(x)/sqrt(var + eps) of a unit" if self.centred else "1"

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
        if self.axes > 1 and self.share == 1:  # the first elements may be parts of axes
            return Geometry("a d", "", "a d", _last_axis(layout, size))
        if self.heads or self.modulate == "sample":
            return Geometry("t d", "t", "d", {"t": first, "d": rest})
        if self.groups > 1:
            sizes = {"g": self.groups, "d": size // self.groups}
            return Geometry("g d", "g", "g d", sizes)
        return Geometry("d", "", "d", {"d": size})

    def result_shapes(self, output: str, rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that a result may have, given that of x."""
        like = {each.name: each.like for each in self.outputs}[output]
        if like in ("scale", "shift"):
            return ((rows[0], rows[-1]),)
        return ((self.parameter_size(rows),),) if like in self.parameters else (rows,)

    def parameter_size(self, rows: Sequence[int]) -> int:
        """Return the number of elements of gamma, given the shape of x as the judge has it."""
        if self.axes > 1:
            return prod(rows[1:])
        of_channels = (self.spatial or self.over == "channels") and len(rows) > 2
        return int(rows[1] if of_channels else rows[-1])

    def give(self, name: str, array: Array, shape: tuple[int, ...]) -> Array:
        """Return gamma and beta with several axes, and x with the channels last."""
        if self.axes > 1 and name in self.parameters:
            return array.reshape(shape[1:])
        if self.channels_last and name not in self.parameters:
            return np.moveaxis(array, 1, -1)
        return array

    def take(self, output: str, result: Array, shape: tuple[int, ...]) -> Array:
        """Return what `give` would make a result of."""
        like = {each.name: each.like for each in self.outputs}[output]
        of_parameter = like in self.parameters
        if not (self.axes > 1 if of_parameter else self.channels_last):
            return result
        expected = shape[1:] if of_parameter else (shape[0], *shape[2:], shape[1])
        if result.shape != expected:
            raise TypeError(f"{output} must have the shape {expected}, got {result.shape}")
        return result.reshape(-1) if of_parameter else np.moveaxis(result, -1, 1)

    def cases(self, dtype: str, level: str, seed: int = 0) -> Iterator[Case]:
        """Yield the cases of the plain norm, whose rows become units, and some of gates."""
        self.check_type(dtype)
        for case in grouped_cases(self, dtype, level, seed):
            yield from self.within_limits(case)

    def units(self, case: Case) -> Array:
        """Return x as units."""
        return self.geometry(case).units_of(case.x.reshape(case.shape))

    def exact(self, case: Case) -> dict[str, Float64s]:
        """Return all outputs, and r, xhat and the gate of each row."""
        return exact_answers(self, case)

    def scales(self, case: Case, exact: Mapping[str, Float64s]) -> GroupedScales:  # type: ignore[override]
        """Return the natural scales."""
        return GroupedScales(case, exact, self)

    def recipes(self, case: Case, results: Results) -> dict[str, RecipeResult]:  # noqa: ARG002 (of the interface)
        """Return y by every recipe, for ordinary rows of a type of 16 bits."""
        narrow = shows_recipe(case.dtype) and shows_recipe(self.result_type or case.dtype)
        if not narrow or case.family != "normal":
            return {}
        return recipe_results(self, case)

    def inner_roundings(self, dtype: str) -> dict[str, RoundedResult]:  # noqa: ARG002 (of the interface)
        """Return nothing."""
        return {}

    def backward_recipes(self, case: Case, output: str) -> dict[str, RecipeResult]:  # noqa: ARG002 (of the interface)
        """Return nothing."""
        return {}

    def hypotheses(self, output: str) -> dict[str, Hypothesis]:
        """Return what a result would be if one step were wrong."""
        return hypotheses_of(self, output)

    def clues(self, output: str) -> Clues:  # noqa: ARG002 (of the interface)
        """Return no clues."""
        return Clues()


def _last_axis(layout: str, size: int) -> dict[str, int]:
    """Return the sizes of the last axis of rows, and of all axes before it."""
    last = shape_of_layout(layout)[-1]
    return {"a": size // last, "d": last}


def _share(variance: str) -> Fraction:
    """Return the part of a unit that counts."""
    if not variance:
        return Fraction(1)
    try:
        share = Fraction(variance)
    except (ValueError, ZeroDivisionError):
        share = Fraction(0)
    if not 0 < share < 1:
        raise ValueError(f"variance must be a fraction between 0 and 1 as 3/4; got {variance!r}")
    return share
