"""How rows, as which a case holds them, lie in memory when a subject gets them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import Array, Float64s


def _with_gaps(rows: Array) -> Array:
    """Return the same values, each followed by a number that is none of them."""
    wide = np.full((*rows.shape, 2), 77.0, rows.dtype)
    wide[..., 0] = rows
    return wide[..., 0]


def _with_padding(rows: Array) -> Array:
    """Return the same values as the middle columns of a wider array."""
    size = rows.shape[-1]
    wide = np.full((*rows.shape[:-1], 3 * size), 77.0, rows.dtype)
    wide[..., size : 2 * size] = rows
    return wide[..., size : 2 * size]


def _column_by_column(rows: Array) -> Array:
    """Return the same values, those of a column next to each other."""
    return np.ascontiguousarray(rows.T).T


def _read_only(rows: Array) -> Array:
    """Return the same memory, which nobody may write to by this array."""
    view = rows.view()
    view.flags.writeable = False
    return view


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda rows: rows,
    "one-axis": lambda rows: rows.reshape(-1),
    "three-axes": lambda rows: rows.reshape(2, -1, rows.shape[1]),
    "strided": _with_gaps,
    "padded": _with_padding,
    "transposed": _column_by_column,
    "read-only": _read_only,
}
"""How rows, as which a case holds them, are given to the subject."""


Predictor = Callable[[Mapping[str, Float64s]], Float64s]
"""Returns an array near an exact one, from the inputs in float64 and from what was found before.

It computes with single operations of IEEE 754, whose bits are the same everywhere.
"""


class Input(NamedTuple):
    """An argument: `data` are rows for forward, a `gradient` rows for backward.

    A `parameter` has one number for each column, for forward, and may be None.
    """

    name: str
    role: Literal["data", "parameter", "gradient"]


class Output(NamedTuple):
    """A result: it has the shape and the type of the input `like`.

    So it has a number for each element of a row, or, like a parameter, one for each column: then
    it is a sum over rows. Results of backward say so.
    """

    name: str
    like: str
    backward: bool = False


class RecipeResult(NamedTuple):
    """What a recipe gives: numbers of a type, as float64, and which of them are known."""

    values: Float64s
    decided: NDArray[np.bool_]


class Scales(Protocol):
    """How large the errors of a case may be: u times a few roundings times its natural scales."""

    @property
    def kappa(self) -> Float64s:
        """The condition number of each row, as a column."""

    def of(self, output: str, power: int) -> Float64s:
        """Return the scale of each element, for errors that grow like this power of kappa.

        Rows that a case repeats are taken once.
        """

    def terms(self, output: str) -> int:
        """Return how many numbers are added up for one of the result."""


@dataclass(frozen=True)
class Domain:
    r"""Rows without large numbers, or without a large mean.

    A float32 kernel is not expected to survive 1e30, whose square float32 does not have. What is
    beyond is run all the same, and its outcome is a verdict of its own, not a grade.

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
        """Refuse what holds no row."""
        for name in ("largest", "kappa"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give a number above zero")

    @property
    def is_all(self) -> bool:
        """Whether it leaves nothing out."""
        return self == EVERYWHERE

    def __str__(self) -> str:
        """Say it in words."""
        limits = {"|x|": self.largest, "kappa": self.kappa}
        said = [f"{name} up to {limit:g}" for name, limit in limits.items() if limit < math.inf]
        return " and ".join(said) or "all rows"


EVERYWHERE = Domain()


KINDS = ("ordinary", "sweep", "hard", "special", "subnormal")
"""Ordinary input must simply be right. A sweep raises the condition number step by step; hard
cases are rows that broke somebody. Special ones hold values that are not finite; subnormal ones
are about numbers that a processor may be told to flush."""


class Operation(ABC):
    """An operation that can be judged: what goes in and out, cases, exact answers, and scales.

    Attributes
    ----------
    name, title : str
        For programs, and for people.
    inputs : tuple of Input
        In the order in which they are given; the first has the shape of the case.
    outputs : tuple of Output
        In the order in which they are returned.
    takes_eps : bool
        Whether forward is given eps after its arrays.
    condition, condition_description : str
        What kappa is as a formula, and in a sentence for the HTML report.
    extensions : mapping of str to str
        What is judged only where a subject asks for it, and what it means.
    not_for_commands : frozenset of str
        Those that a command cannot be asked for: its files hold plain rows and parameters.
    case_file : str
        The file of named cases, if it has one: a path below ``verify/operations``.
    folder : Path, optional
        Where the sources that compute its exact answers are: only then answers are kept.
    shared_sources : tuple of Path
        Folders of such sources that it shares with others.
    predictors : mapping of str to callable
        For names of `exact`, in the order in which they are found: an answer is kept by these.
    variant : str
        What answers depend on beside these sources and the inputs.
    recipe_names : mapping of str to str
        Those that a subject may claim, and what they are: see `recipes`.
    """

    name: str
    title: str
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    takes_eps: bool = True
    condition: str
    condition_description: str
    extensions: Mapping[str, str] = {}
    not_for_commands: frozenset[str] = frozenset()
    case_file: str = ""
    folder: Path | None = None
    shared_sources: tuple[Path, ...] = ()
    predictors: Mapping[str, Predictor] = {}
    variant: str = ""
    recipe_names: Mapping[str, str] = {}

    @abstractmethod
    def cases(self, dtype: str, level: str, seed: int = 0) -> "Iterable[Case]":
        """Return all cases of a type, also those that a subject must ask for.

        Another seed is other noise in cases of the same kinds; cases without noise stay.
        """

    @abstractmethod
    def exact(self, case: "Case") -> dict[str, Float64s]:
        """Return numbers that are computed in integers, as arrays that can be kept in a file.

        By output: (..., 2), each correctly rounded value and what the rounding left over, in ulp
        of the value (`truenorm.verify.oracle`). An output like an absent parameter has
        none. By other names: whatever the scales need. Rows that are repeated are taken once.
        """

    @abstractmethod
    def scales(self, case: "Case", exact: Mapping[str, Float64s]) -> Scales:
        """Return the natural scales of a case, from what `exact` returned."""

    @property
    def spec(self) -> str:
        """What `truenorm.verify.operations.parse_operation` makes it of, in another process."""
        return self.name

    def type_of(self, output: str, like: str) -> str:  # noqa: ARG002 (others look at its name)
        """Return the type of a result, given that of the input it is like."""
        return like

    def recipes(self, case: "Case") -> Mapping[str, RecipeResult]:  # noqa: ARG002 (others look at it)
        """Return the first result by each way of rounding on the way to it, where bits tell."""
        return {}

    def hypotheses(self, output: str) -> "Mapping[str, Hypothesis]":  # noqa: ARG002 (the same)
        """Return what a result would be if a step were done otherwise, by words for that step.

        The words are a clause such as "beta is left out".
        """
        return {}

    def inputs_of(self, *roles: str) -> list[str]:
        """Return the names of the inputs that have one of these roles."""
        return [each.name for each in self.inputs if each.role in roles]

    def outputs_of(self, *, backward: bool) -> list[str]:
        """Return the names of what backward returns, or of what forward does."""
        return [each.name for each in self.outputs if each.backward == backward]

    def is_rows(self, name: str) -> bool:
        """Tell whether an input or an output consists of rows, and not of one number a column."""
        like = {each.name: each.like for each in self.outputs}.get(name, name)
        return like not in self.inputs_of("parameter")


@dataclass(frozen=True, eq=False)
class Case:
    """The arguments of a forward and a backward pass, those of D columns as rows.

    Each input is an attribute as well: ``case.x`` is ``case.inputs["x"]``.

    Attributes
    ----------
    operation : Operation
    name : str
        Says all: the same name is the same case, on every machine.
    dtype : str
        The type of the rows.
    inputs : mapping of str to ndarray or None
        By name: rows of shape (rows, D), and parameters of shape (D,) or None.
    eps : float
    kind : str
        One of `KINDS`.
    family : str
        What it has in common with other cases, without type and size.
    why : str
        What it is there to show.
    sources : tuple of str
        Where such a failure was reported.
    repeats : int
        The rows are a few, so many times over: so the exact answer stays cheap.
    layout : str
        One of `truenorm.verify.operation.LAYOUTS`.
    gradient_layout : str
        That of the gradients that backward is given, if it is another one.
    needs : frozenset of str
        The extensions of the operation that a subject must have asked for.
    made : str
        The Python that makes it again, with ``{operation}`` where one is said; by default, its
        name is enough.
    seeded : bool
        Whether it is of a seed that somebody chose: answers to it are not kept.
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

    def __post_init__(self) -> None:
        """Refuse a kind or a layout that nobody knows."""
        if self.kind not in KINDS or self.layout not in LAYOUTS:
            raise ValueError(f"{self.name} has the kind {self.kind!r}, the layout {self.layout!r}")

    def __str__(self) -> str:
        """Return its name, which pytest shows."""
        return self.name

    def __getattr__(self, name: str) -> Any:
        """Return an input."""
        inputs = self.__dict__.get("inputs", {})  # there is none yet in a copy that is being made
        if name in inputs:
            return inputs[name]
        raise AttributeError(f"a case has no attribute or input {name!r}")

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows, and D."""
        rows, size = self.rows[self.operation.inputs[0].name].shape
        return rows, size

    @property
    def rows(self) -> dict[str, Array]:
        """The inputs that consist of rows, by name."""
        by_rows = self.operation.inputs_of("data", "gradient")
        return {name: rows for name in by_rows if (rows := self.inputs[name]) is not None}

    def in_layout(self, rows: Array, name: str = "") -> Array:
        """Return rows in the layout in which the subject gets them, as the input of a name."""
        own = self.gradient_layout if name in self.operation.inputs_of("gradient") else ""
        return LAYOUTS[own or self.layout](rows)

    def with_inputs(self, **inputs: Array | None) -> "Case":
        """Return the same case with other inputs in place of some."""
        return replace(self, inputs={**self.inputs, **inputs})

    def part(self, rows: slice) -> "Case":
        """Return the same case with some of its rows alone."""
        some = {name: array[rows] for name, array in self.rows.items()}
        return replace(self.with_inputs(**some), repeats=1)

    def tiled(self, times: int) -> "Case":
        """Return the same case with its rows so many times over."""
        many = {name: np.tile(array, (times, 1)) for name, array in self.rows.items()}
        return replace(self.with_inputs(**many), repeats=times * self.repeats)


Hypothesis = Callable[[Case], Float64s]
"""Returns a result of a case in float64, as it would be if something were wrong."""


def padded(case: Case, numbers: Sequence[float]) -> Case:
    """Return a case with rows of padding below its own: each is one number, over and over.

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
    }
    return replace(case.with_inputs(**more), repeats=1)


def with_idle_rows(case: Case, *, among: bool) -> Case:
    """Return a case with each row once more, below all or after each, its gradients zero.

    So sums over rows have the same terms, and zeros.

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
