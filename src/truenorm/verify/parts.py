"""What operations are made of: inputs, outputs, scales, and guesses by which answers are kept."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import Float64s

__all__ = ["Bits", "Guess", "Input", "Output", "Scales"]

Guess = Callable[[Mapping[str, Float64s]], Float64s]
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


class Bits(NamedTuple):
    """What a recipe gives: numbers of a type, as float64, and which of them are known."""

    values: Float64s
    known: NDArray[np.bool_]


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
