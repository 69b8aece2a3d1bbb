"""Operations as the judge sees them: inputs, outputs, cases, and the layouts of rows."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.tools.text import short_number
from truenorm.verify.causes import Cause
from truenorm.verify.sums import Way
from truenorm.verify.types import Array, Float64s


def _with_gaps(rows: Array) -> Array:
    """Return the same values, each followed by another number in memory."""
    wide = np.full((*rows.shape, 2), 77.0, rows.dtype)
    wide[..., 0] = rows
    return wide[..., 0]


def _with_padding(rows: Array) -> Array:
    """Return the same values as the middle columns of a wider array."""
    size = rows.shape[-1]
    wide = np.full((*rows.shape[:-1], 3 * size), 77.0, rows.dtype)
    wide[..., size : 2 * size] = rows
    return wide[..., size : 2 * size]


def _in_other_order(rows: Array) -> Array:
    """Return the same values; the first two axes are in the other order in memory."""
    return np.ascontiguousarray(rows.swapaxes(0, 1)).swapaxes(0, 1)


def _unaligned(rows: Array) -> Array:
    """Return the same values, contiguous, one element beyond an address divisible by 64."""
    memory = np.empty(rows.nbytes + 128, np.uint8)
    start = -memory.ctypes.data % 64 + rows.itemsize
    moved = memory[start : start + rows.nbytes].view(rows.dtype).reshape(rows.shape)
    moved[...] = rows
    return moved


def _read_only(rows: Array) -> Array:
    """Return a read-only view."""
    view = rows.view()
    view.flags.writeable = False
    return view


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda rows: rows,
    "one-axis": lambda rows: rows.reshape(-1),
    "three-axes": lambda rows: rows.reshape(2, -1, rows.shape[1]),
    "one-token": lambda rows: rows.reshape(-1, 1, rows.shape[1]),
    "four-axes": lambda rows: rows.reshape(2, 1, -1, rows.shape[1]),
    "five-axes": lambda rows: rows.reshape(1, 2, 1, -1, rows.shape[1]),
    "swapped-axes": lambda rows: _in_other_order(rows.reshape(2, -1, rows.shape[1])),
    "strided": _with_gaps,
    "padded": _with_padding,
    "transposed": lambda rows: np.ascontiguousarray(rows.T).T,
    "unaligned": _unaligned,
    "read-only": _read_only,
}
"""By name: functions that lay out rows as a subject gets them."""
AS_SHAPE, CHANNELS_LAST = "as-", "-last"
"""The start of a layout that gives each row a shape, ``as-12x25``. The second ends a layout whose
channels, the first axis of that shape, are the last axis in memory."""


def shape_of_layout(layout: str) -> tuple[int, ...]:
    """Return the shape of a row in a layout such as ``as-12x25``."""
    sizes = layout.removeprefix(AS_SHAPE).removesuffix(CHANNELS_LAST)
    return tuple(map(int, sizes.split("x")))


Predictor = Callable[[Mapping[str, Float64s]], Float64s]
"""Predicts an exact array from the inputs in float64 and from arrays before it.

A predictor uses single operations of IEEE 754, whose bits are the same everywhere.
"""


class Input(NamedTuple):
    """An argument: `data` are rows for forward, a `gradient` rows for backward.

    A `parameter` has one number for each column, for forward, and may be None. A `setting` is an
    array that forward takes after eps, such as the scale of a quantized result.
    """

    name: str
    role: Literal["data", "parameter", "gradient", "setting"]


class Output(NamedTuple):
    """A result with the shape and the type of the input `like`.

    An output like a parameter is a sum over rows. `backward` is True for results of backward.
    """

    name: str
    like: str
    backward: bool = False


class RecipeResult(NamedTuple):
    """A result by a recipe, as float64 numbers; `decided` where float32 noise cannot change it."""

    values: Float64s
    decided: NDArray[np.bool_]


@dataclass(frozen=True)
class Quantization:
    """The quantization of the results of one type, as codes and scales show it.

    Attributes
    ----------
    dtype : str
        The type of the rows.
    exact_codes : float
        The share of codes of ordinary rows that are exact, given their scales.
    noise : float
        Of ordinary rows: the rms error of codes times scales, divided by the error of exact codes.
    scale : str
        The rule of scales: ``amax/qmax`` or ``amax*[1/qmax]``; empty if the bits show no rule.
    floors : dict of str to str
        The rules for the least scale that tiny groups follow, each with a case that shows it.
        Empty if there is no least scale. More than one is a finding.
    zeros : str
        The scale of groups of zeros; empty if there are several.
    """

    dtype: str
    exact_codes: float
    noise: float
    scale: str = ""
    floors: Mapping[str, str] = field(default_factory=dict)
    zeros: str = ""

    @property
    def floor(self) -> str:
        """The rule for the least scale, or ``none``; empty if there are several."""
        return ("none", *self.floors)[len(self.floors)] if len(self.floors) < 2 else ""


class Scales(Protocol):
    """The natural scales of a case: errors may be a few roundings times u times the scale."""

    @property
    def kappa(self) -> Float64s:
        """The condition number of each row, as a column."""

    def of(self, output: str, power: int) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa.

        Repeated rows are included once.
        """

    def terms(self, output: str) -> int:
        """Return how many numbers are summed for one element of the output."""


@dataclass(frozen=True)
class Domain:
    r"""Limits of the rows that a subject claims to be right for.

    The square of 1e30 overflows in float32, and not every kernel scales. Cases beyond the domain
    are run, too: a section of the report has their outcome, on which no grade depends.

    Attributes
    ----------
    largest : float
        The largest \|x\|.
    kappa : float
        The largest condition number of a row.
    """

    largest: float = math.inf
    kappa: float = math.inf

    def __post_init__(self) -> None:
        """Raise ValueError for a domain without rows."""
        for name in ("largest", "kappa"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above zero; got {getattr(self, name)}")

    @property
    def is_all(self) -> bool:
        """True if no row is excluded."""
        return self == EVERYWHERE

    def __str__(self) -> str:
        """Return the limits as text."""
        limits = {"|x|": self.largest, "kappa": self.kappa}
        texts = [
            f"{name} <= {short_number(limit)}"
            for name, limit in limits.items()
            if limit < math.inf
        ]
        return " and ".join(texts) or "all rows"


EVERYWHERE = Domain()
MODEL_INPUT = Domain(largest=1e4, kappa=10.0)
"""Input of models: the domain of a subject that declares no domain, except with strict."""


KINDS = ("ordinary", "sweep", "hard", "special", "subnormal")
"""Ordinary input is easy. A sweep raises the condition number step by step. Hard cases are rows on
which kernels failed. Special cases have non-finite values. Subnormal cases have numbers that a CPU
may flush to zero."""


def _nothing(*_: Any) -> dict[Any, Any]:
    return {}


def _nothing_unchanged(_: str) -> None:
    return None


@dataclass(frozen=True)
class CodeKnowledge:
    """Knowledge of kernels that quantize an operation, for codes and scales.

    Codes are not linear in y, so that causes are searched by bits.

    Attributes
    ----------
    ways : callable
        Of a case and the results of a call: the codes by each way to scale y.
    find_cause : callable
        Of an output and of all calls of a type: the likely causes of wrong results, and the number
        of hypotheses. With `special`, the causes of wrong NaN and infinity.
    summarize : callable
        Of all calls of a type: the summary of codes and scales, or None.
    """

    ways: "Callable[[Case, Results], Mapping[str, RecipeResult]]"
    find_cause: "Callable[..., tuple[tuple[Cause, ...], int]]"
    summarize: "Callable[[Sequence[tuple[Case, Results]]], Quantization | None]"


@dataclass(frozen=True)
class Knowledge:
    """Knowledge of kernels of an operation: recipes, and hypotheses about wrong results.

    Attributes
    ----------
    recipe_names : mapping of str to str
        Recipes that a subject may claim, with their formulas.
    recipes : callable
        Of a case and the results of a call: the first output by each recipe, for cases whose
        bits show the recipe. Codes depend on the scales that were returned.
    inner_roundings : callable
        Of a type: the first output with roundings that no recipe has, by cause.
    backward_recipes : callable
        Of a case and an output: a result of backward by the steps that are rounded on the way.
    hypotheses : callable
        Of an output: the output if a step were different, by cause.
    unchanged : callable
        Of an output: the same computation with no step changed, or None. A hypothesis must differ
        from this computation: both have the rounding errors of the steps that are right.
    scale_of : callable
        Of an output, the cause of a hypothesis and a case: the natural scale of the hypothesis,
        or 0 if it is that of the exact answer.
    error_patterns : callable
        Of an output: patterns of errors that no hypothesis explains as a whole.
    codes : CodeKnowledge, optional
        Knowledge of a quantized operation, which has no `hypotheses` and `error_patterns`.
    """

    recipe_names: Mapping[str, str] = field(default_factory=dict)
    recipes: "Callable[[Case, Results], Mapping[str, RecipeResult]]" = _nothing
    inner_roundings: "Callable[[str], Mapping[Cause, RoundedResult]]" = _nothing
    backward_recipes: "Callable[[Case, str], Mapping[str, RecipeResult]]" = _nothing
    hypotheses: "Callable[[str], Mapping[Cause, Hypothesis]]" = _nothing
    unchanged: "Callable[[str], Hypothesis | None]" = _nothing_unchanged
    scale_of: "Callable[[str, Cause, Case], Float64s]" = lambda *_: np.zeros(1)
    error_patterns: "Callable[[str], ErrorPatterns]" = lambda _: ErrorPatterns()
    codes: CodeKnowledge | None = None


class Operation(ABC):
    """An operation that can be judged: inputs, outputs, cases, exact answers and scales.

    Attributes
    ----------
    name, title : str
        For programs, and for people.
    inputs : tuple of Input
        In the order of the arguments; the first has the shape of the case.
    outputs : tuple of Output
        In the order in which they are returned.
    takes_eps : bool
        Whether forward takes eps after its arrays.
    centred : bool
        Whether the operation subtracts the mean of a row before squaring.
    condition, condition_description : str
        The formula of kappa, and a sentence about it for the HTML report.
    extensions : mapping of str to str
        By name: the meaning of a property that is judged only if a subject claims it.
    not_for_commands : frozenset of str
        Extensions that a command cannot claim: files for commands hold plain rows.
    case_file : str
        The file of named cases, if any: a path below ``verify/norms``.
    folder : Path, optional
        The folder of cached answers and sources; without a folder, answers are not cached.
    shared_sources : tuple of Path
        Other source files that decide the exact answers.
    predictors : mapping of str to callable
        For arrays of `exact`, in order: cached answers are distances from predictions.
    variant : str
        Options on which answers depend, beside the sources and the inputs.
    knowledge : Knowledge
        Recipes of kernels, and hypotheses about wrong results.
    unsupported : mapping of str to str
        By use, such as ``files`` or ``score``: the operation that the use needs. See
        `require_support`.
    instead : str
        The uses that work in place of an unsupported use.
    rounded_once : frozenset of str
        Outputs that every kernel can round correctly: see `biased_symptoms`.
    in_order : bool
        Whether a plain function is called with the inputs in their order, whatever their names.
    reshapes : bool
        Whether a subject expects other shapes than the judge: see `give` and `take`.
    expected_type : type, optional
        The class of the answers, if it is not `truenorm.verify.oracle.Expected`.
    columns, indices : frozenset of str
        Inputs and results with one number for each row, and those of them that are integers below
        the number of columns.
    ranges : mapping of str to tuple
        By input: the least and the largest number of its cases.
    multiple : int
        The number of columns is a multiple of it.
    """

    name: str
    title: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    takes_eps: bool = True
    centred: bool = False
    condition: str
    condition_description: str
    extensions: Mapping[str, str] = {}
    not_for_commands: frozenset[str] = frozenset()
    case_file: str = ""
    folder: Path | None = None
    shared_sources: tuple[Path, ...] = ()
    predictors: Mapping[str, Predictor] = {}
    variant: str = ""
    knowledge: Knowledge = Knowledge()
    unsupported: Mapping[str, str] = {}
    instead: str = ""
    rounded_once: frozenset[str] = frozenset()
    in_order: bool = False
    reshapes: bool = False
    expected_type: Any = None
    columns: frozenset[str] = frozenset()
    indices: frozenset[str] = frozenset()
    ranges: Mapping[str, tuple[float, float]] = {}
    multiple: int = 1

    @abstractmethod
    def cases(self, dtype: str, level: str, seed: int = 0) -> "Iterable[Case]":
        """Return all cases of a type, with the cases of extensions.

        Another seed changes the noise; cases without noise stay.
        """

    @abstractmethod
    def exact(self, case: "Case") -> dict[str, Float64s]:
        """Compute the exact numbers of a case in integers, and return them as float64 arrays.

        By output: (..., 2), the correctly rounded values and their remainders in ulp
        (`truenorm.verify.oracle.round_exactly`). Omit outputs like an absent parameter. By other
        names: arrays that the scales need. Repeated rows are included once.
        """

    @abstractmethod
    def scales(self, case: "Case", exact: Mapping[str, Float64s]) -> Scales:
        """Return the natural scales of a case, given the exact numbers of the case."""

    def require_type(self, dtype: str) -> None:  # noqa: B027 (norms override it)
        """Raise ValueError if rows cannot have a type."""

    @property
    def spec(self) -> str:
        """The text that `truenorm.verify.operations.parse_operation` parses, such as its name."""
        return self.name

    @property
    def label(self) -> str:
        """The text that names the operation in a baseline, the same on every machine."""
        return self.spec

    def type_of(self, output: str, like: str) -> str:  # noqa: ARG002 (subclasses use it)
        """Return the type of a result, given the type of the input it is like."""
        return like

    def result_shapes(self, output: str, rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the shapes that a result may have, given the shape of x; the first is named."""
        return (rows,) if self.is_rows(output) else (rows[-1:],)

    def give(self, name: str, array: Array, shape: tuple[int, ...]) -> Array:  # noqa: ARG002 (subclasses use it)
        """Return an input as a subject expects it, by a view; `shape` is `Case.given_shape`."""
        return array

    def take(self, output: str, result: Array, shape: tuple[int, ...]) -> Array:  # noqa: ARG002 (subclasses use it)
        """Return a result of a subject as the judge expects it: the inverse of `give`.

        Raise TypeError if the shape differs from the shape of the input that the result is like.
        """
        return result

    def inputs_of(self, *roles: str) -> list[str]:
        """Return the names of the inputs that have one of these roles."""
        return [each.name for each in self.inputs if each.role in roles]

    def outputs_of(self, *, backward: bool) -> list[str]:
        """Return the names of the outputs of backward, or of forward."""
        return [each.name for each in self.outputs if each.backward == backward]

    def is_rows(self, name: str) -> bool:
        """Return True if an input or an output consists of rows, not of one number a column."""
        like = {each.name: each.like for each in self.outputs}.get(name, name)
        return like not in self.inputs_of("parameter")


def require_support(operation: Operation, use: str, what: str) -> None:
    """Raise ValueError if an operation does not support a use, such as ``files`` or ``score``.

    `what` is the function or the command that needs it.
    """
    if needed := operation.unsupported.get(use):
        instead = f": {operation.instead}" if operation.instead else ""
        raise ValueError(f"{what} needs {needed}; got {operation.spec}{instead}")


@dataclass(frozen=True, eq=False)
class Case:
    """The arguments of a forward and a backward pass; data are rows of D columns.

    Each input is an attribute as well: ``case.x`` is ``case.inputs["x"]``.

    Attributes
    ----------
    operation : Operation
    name : str
        Identifies the case: cases of one name have the same bits on every machine.
    dtype : str
        The type of the rows.
    inputs : mapping of str to ndarray or None
        By name: rows of shape (rows, D), and parameters of shape (D,) or None.
    eps : float
    kind : str
        One of `KINDS`.
    family : str
        The name of similar cases, without type and size.
    why : str
        The purpose of the case.
    sources : tuple of str
        Reports of failures on similar rows.
    repeats : int
        How often the first rows are repeated, which keeps exact answers cheap.
    layout : str
        One of `truenorm.verify.operation.LAYOUTS`.
    gradient_layout : str
        The layout of the gradients, if it is different.
    needs : frozenset of str
        The extensions that a subject must claim.
    made : str
        The Python expression that makes the case, with ``{operation}`` for an operation
        argument; by default, the case is made by name.
    seeded : bool
        Whether a user chose the seed: answers are then not cached.
    enclosed : bool
        Whether answers come from enclosures: integers would take seconds for wide rows.
    compared : bool
        Whether results are compared between calls only: answers of many wide rows take seconds.
    """

    operation: Operation = field(repr=False)
    name: str
    dtype: str
    inputs: Mapping[str, Array | None] = field(repr=False)
    eps: float = 0.0
    kind: str = "ordinary"
    family: str = "ordinary"
    why: str = ""
    sources: tuple[str, ...] = ()
    repeats: int = 1
    layout: str = "rows"
    gradient_layout: str = ""
    needs: frozenset[str] = frozenset()
    made: str = ""
    seeded: bool = False
    enclosed: bool = False
    compared: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown kind or layout."""
        known = self.layout in LAYOUTS or self.layout.startswith(AS_SHAPE)
        if self.kind not in KINDS or not known:
            raise ValueError(f"{self.name} has the kind {self.kind!r}, the layout {self.layout!r}")

    def __str__(self) -> str:
        """Return the name."""
        return self.name

    def __getattr__(self, name: str) -> Any:
        """Return an input."""
        inputs = self.__dict__.get("inputs", {})  # absent while a copy is made
        if name in inputs:
            return inputs[name]
        raise AttributeError(f"a case has no attribute or input {name!r}")

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and D."""
        rows, size = self.first.shape
        return rows, size

    @property
    def rows(self) -> dict[str, Array]:
        """The inputs that consist of rows, by name."""
        by_rows = self.operation.inputs_of("data", "gradient")
        return {name: rows for name in by_rows if (rows := self.inputs[name]) is not None}

    def in_layout(self, rows: Array, name: str = "") -> Array:
        """Return rows in the layout of the case; `name` is the input."""
        of_gradient = self.gradient_layout if name in self.operation.inputs_of("gradient") else ""
        if self.layout.startswith(AS_SHAPE):
            shape = shape_of_layout(self.layout)
            # Inputs with fewer columns, such as one scale for all units of a row, stay rows.
            fits = rows.shape[1] == math.prod(shape)
            rows = rows.reshape(len(rows), *shape) if fits else rows
            if fits and self.layout.endswith(CHANNELS_LAST):
                rows = np.moveaxis(np.ascontiguousarray(np.moveaxis(rows, 1, -1)), -1, 1)
            return LAYOUTS[of_gradient](rows) if of_gradient else rows
        return LAYOUTS[of_gradient or self.layout](rows)

    @property
    def given_shape(self) -> tuple[int, ...]:
        """The shape in which the subject gets x."""
        return self.in_layout(self.first).shape

    @property
    def first(self) -> Array:
        """The rows of the first input."""
        return self.rows[self.operation.inputs[0].name]

    def with_inputs(self, **inputs: Array | None) -> "Case":
        """Return the case with some inputs replaced."""
        return replace(self, inputs={**self.inputs, **inputs})

    def part(self, rows: slice) -> "Case":
        """Return the case with some of its rows."""
        some = {name: array[rows] for name, array in self.rows.items()}
        return replace(self.with_inputs(**some), repeats=1)

    def tiled(self, times: int) -> "Case":
        """Return the case with its rows repeated."""
        many = {name: np.tile(array, (times, 1)) for name, array in self.rows.items()}
        return replace(self.with_inputs(**many), repeats=times * self.repeats)


Results = Mapping[str, Array | None]
"""The results of a call by output, as the subject returned them."""
RoundedResult = Callable[[Case], RecipeResult]
"""Returns an output of a case with some steps rounded."""
Hypothesis = Callable[[Case], Float64s]
"""Returns an output of a case in float64, as it would be if a step were wrong."""

Mixture = Callable[[Case, Case], Float64s]
"""Returns an output of the second case, computed with an array of the first case."""
Clamped = Callable[[float, Case], Float64s]
"""Returns an output of a case, with an array clamped between minus a limit and the limit."""
Summed = Callable[[Way, Case], Float64s]
"""Returns an output of a case, with sums taken in a way."""


class ErrorTerms(NamedTuple):
    """The error of a result if a step, or two, are wrong: a sum of multiples of `terms`.

    A multiple is one number for each row (`axis` 1) or for each column (`axis` 0). `is_factor` is
    True if the only term is the result by a factor: the multiple is then the relative error.
    """

    steps: str  # in the id of a cause
    words: str  # for the steps
    axis: int
    terms: tuple[Hypothesis, ...]
    is_factor: bool = False


class Growth(NamedTuple):
    """Causes of errors that grow with kappa: see `ErrorTerms`, with one number for each row.

    By term: the power of kappa and the cause. `rest` is the cause of an error of single elements
    that grows like kappa.
    """

    terms: tuple[Hypothesis, ...]
    powers: tuple[int, ...]
    causes: tuple[Cause, ...]
    rest: Cause


class ErrorPatterns(NamedTuple):
    """Patterns that causes leave in the errors of one output.

    Attributes
    ----------
    error_terms : sequence of ErrorTerms
        The errors that single wrong intermediate results would cause.
    mixtures : mapping of Cause to callable
        By the step that is taken from another call: the output with that step.
    growth : Growth, optional
        The errors that grow with kappa.
    clamped : mapping of Cause to callable
        By input or step: the output if that array is clamped to a limit.
    sums : mapping of Cause to callable
        By one or several sums: the output if the sums are taken in a way.
    """

    error_terms: Sequence[ErrorTerms] = ()
    mixtures: Mapping[Cause, Mixture] = {}
    growth: Growth | None = None
    clamped: Mapping[Cause, Clamped] = {}
    sums: Mapping[Cause, Summed] = {}


def padded(case: Case, numbers: Sequence[float]) -> Case:
    """Return a case with constant rows of padding below its rows.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> padded(tv.case("float32-normal-4x2"), [0.0, float("inf")]).x[4:]
    array([[ 0.,  0.],
           [inf, inf]], dtype=float32)
    """
    below = np.array(numbers)[:, np.newaxis]
    more = {
        name: np.concatenate([rows, np.tile(below, rows.shape[1]).astype(rows.dtype)])
        for name, rows in case.rows.items()
        if name not in case.operation.indices
    }
    for name in case.operation.indices:
        index = case.rows[name]
        more[name] = np.concatenate([index, np.zeros((len(below), 1), index.dtype)])
    return replace(case.with_inputs(**more), repeats=1)


def other_cases(case: Case) -> list[Case]:
    """Return other inputs for calls before a case, on which a result must not depend.

    The first has the same shape. The second has twice as many rows, and one more column.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> [other.shape for other in other_cases(tv.case("float32-normal-4x67"))]
    [(4, 67), (8, 68)]
    """
    settings = case.operation.inputs_of("setting")
    arrays = {
        name: array
        for name, array in case.inputs.items()
        if array is not None and name not in settings
    }
    operation = case.operation
    with np.errstate(all="ignore"):
        same = {
            name: array[::-1] * array.dtype.type(1 if name in operation.indices else -2)
            for name, array in arrays.items()
        }
        more = operation.multiple
        wider = {
            name: array
            if name in operation.columns
            else np.concatenate([array, array[..., :more] + array.dtype.type(1)], axis=-1)
            for name, array in same.items()
        }
    wider |= {name: np.tile(wider[name], (2, 1)) for name in case.rows}
    return [replace(case.with_inputs(**inputs), repeats=1) for inputs in (same, wider)]


def with_idle_rows(case: Case, *, among: bool) -> Case:
    """Return a case with a copy of each row whose gradients are zero, at the end or interleaved.

    Sums over rows then have the same terms, and zeros.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> case = tv.case("float32-normal-4x2").part(slice(0, 2))
    >>> with_idle_rows(case, among=True).dy.any(axis=1)
    array([ True, False,  True, False])
    """
    rows = case.shape[0]
    order = np.repeat(np.arange(rows), 2) if among else np.tile(np.arange(rows), 2)
    idle = np.arange(2 * rows) % 2 == 1 if among else np.arange(2 * rows) >= rows
    more = {name: array[order] for name, array in case.rows.items()}
    for name in case.operation.inputs_of("gradient"):
        more[name][idle] = 0
    return replace(case.with_inputs(**more), repeats=1)
