"""What is done with each row, in words that do not depend on a backend."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.rows import Rows


class Norm(NamedTuple):
    """Describe a normalization of rows.

    It is part of the key under which settings are cached, and a tuple is hashed without Python.

    Attributes
    ----------
    centred : bool
        Whether the mean of the row is subtracted.
    """

    centred: bool

    @property
    def name(self) -> str:
        """What its public functions begin with."""
        return "layer_norm" if self.centred else "rms_norm"

    @property
    def saved_numbers(self) -> int:
        """What forward keeps of a row: the mean as a pair, and a variance; or a mean square."""
        return 3 if self.centred else 1


LAYER_NORM = Norm(centred=True)
RMS_NORM = Norm(centred=False)


Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

Rounding = Literal["correct", "fast"]
Arithmetic = Literal["tier1", "tier2", "fast32", "fast64"]
"""Arithmetic of a call. Correct mode: tier 1 (float64 with a rounding test), or tier 2
(double-double) if an array is float64. Fast mode: fast64 for float64 rows, else fast32."""


TYPE_CODES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
"""The types as the C core numbers them: see `core.h`."""


class Parameter(NamedTuple):
    """gamma or beta: its values widened to float64, and its format; None if not given."""

    values: Float64
    float_format: FloatFormat | None


class Settings(NamedTuple):
    """What a call asks for, beside its arrays."""

    norm: Norm
    eps: float
    rounding: Rounding
    backend: str
    """Who did forward: what is saved may mean something else to another backend."""

    threads: int | None = None
    """The most threads to use; None leaves it to the backend."""


@dataclass(slots=True)
class Call:
    """What a backend is told of a call: everything but its rows."""

    norm: Norm
    eps: float
    arithmetic: Arithmetic
    count: int
    size: int
    x_format: FloatFormat
    """The type of x, and so of y, dy and dx."""
    gamma: Float64
    beta: Float64
    """Their finite parts: what is not finite is zero here, and the driver's to deal with."""
    gamma_format: FloatFormat | None
    beta_format: FloatFormat | None
    """Their types, and so those of their gradients; None if there is none to have."""
    threads: int | None

    @classmethod
    def of(cls, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter) -> "Call":
        """Describe a call."""
        return cls(
            norm=settings.norm,
            eps=settings.eps,
            arithmetic=_arithmetic(
                settings.rounding, x.float_format, gamma.float_format, beta.float_format
            ),
            count=x.count,
            size=x.size,
            x_format=x.float_format,
            gamma=finite_part(gamma.values),
            beta=finite_part(beta.values),
            gamma_format=gamma.float_format,
            beta_format=beta.float_format,
            threads=settings.threads,
        )


def finite_part(values: Float64) -> Float64:
    """Return the values with zero in place of what is not finite; themselves if all is."""
    finite = np.isfinite(values)
    return values if finite.all() else np.where(finite, values, 0.0)


def _arithmetic(rounding: Rounding, x: FloatFormat, *parameters: FloatFormat | None) -> Arithmetic:
    """Return the arithmetic of a call with such formats."""
    if rounding == "fast" and x is FLOAT64:
        return "fast64"
    if FLOAT64 in (x, *parameters):
        return "tier2"
    return "fast32" if rounding == "fast" else "tier1"
