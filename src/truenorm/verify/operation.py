"""What is judged: an operation as the judge sees it, and a case, the arguments of one call.

Everything else of the judge goes by the names of inputs and outputs that an operation gives. So
whoever adds an operation writes a subclass of `Operation`, and has it judged, reported and written
to files without a change elsewhere.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from truenorm.verify.layouts import LAYOUTS
from truenorm.verify.parts import Bits, Guess, Input, Output, Scales
from truenorm.verify.types import Array, Float64s

__all__ = ["KINDS", "Case", "Hypothesis", "Operation"]

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
    condition, condition_says : str
        What kappa is as a formula, and in a sentence for the HTML report.
    extensions : mapping of str to str
        What is judged only where a subject asks for it, and what it means.
    not_in_files : frozenset of str
        Those that a command cannot be asked for: its files hold plain rows and parameters.
    case_file : str
        The file of named cases, if it has one: a path below ``verify/operations``.
    folder : Path, optional
        Where the sources that compute its exact answers are: only then answers are kept.
    also_computed_in : tuple of Path
        Folders of such sources that it shares with others.
    guesses : mapping of str to callable
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
    condition_says: str
    extensions: Mapping[str, str] = {}
    not_in_files: frozenset[str] = frozenset()
    case_file: str = ""
    folder: Path | None = None
    also_computed_in: tuple[Path, ...] = ()
    guesses: Mapping[str, Guess] = {}
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
        of the value (`truenorm.verify.answers.rounded`). An output like an absent parameter has
        none. By other names: whatever the scales need. Rows that are repeated are taken once.
        """

    @abstractmethod
    def scales(self, case: "Case", exact: Mapping[str, Float64s]) -> Scales:
        """Return the natural scales of a case, from what `exact` returned."""

    @property
    def words(self) -> str:
        """What `truenorm.verify.operations.operation_of` makes it of, in another process."""
        return self.name

    def type_of(self, output: str, like: str) -> str:  # noqa: ARG002 (others look at its name)
        """Return the type of a result, given that of the input it is like."""
        return like

    def recipes(self, case: "Case") -> Mapping[str, Bits]:  # noqa: ARG002 (others look at it)
        """Return the first result by each way of rounding on the way to it, where bits tell."""
        return {}

    def hypotheses(self, output: str) -> "Mapping[str, Hypothesis]":  # noqa: ARG002 (the same)
        """Return what a result would be if a step were done otherwise, by words for that step.

        The words go on after "what comes out if".
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
        One of `truenorm.verify.layouts.LAYOUTS`.
    gradients : str
        That of the gradients that backward is given, if it is another one.
    needs : frozenset of str
        The extensions of the operation that a subject must have asked for.
    made : str
        The Python that makes it again, with ``{operation}`` where one is said; by default, its
        name is enough.
    drawn : bool
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
    gradients: str = ""
    needs: frozenset[str] = frozenset()
    made: str = ""
    drawn: bool = False

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

    def laid_out(self, rows: Array, name: str = "") -> Array:
        """Return rows in the layout in which the subject gets them, as the input of a name."""
        own = self.gradients if name in self.operation.inputs_of("gradient") else ""
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
