"""Describe a call: its norm, settings, parameters and arithmetic."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.rows import Rows

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

Rounding = Literal["correct", "fast"]
Arithmetic = Literal["tier1", "tier2", "fast32", "fast64"]
"""Arithmetic of a call. Correct mode: tier 1 (float64 with a rounding test), or tier 2
(double-double) if an array is float64. Fast mode: fast64 for float64 rows, else fast32."""

TYPE_CODES = {"float32": 0, "float16": 1, "bfloat16": 2, "float64": 3}
"""Codes of the types in the C core: see `core.h`."""


class Norm(NamedTuple):
    """A normalization of rows. It is a tuple because it is part of the key of a cache.

    Attributes
    ----------
    centred : bool
        True if the mean of the row is subtracted.
    """

    centred: bool

    @property
    def name(self) -> str:
        """Prefix of its public functions."""
        return "layer_norm" if self.centred else "rms_norm"

    @property
    def saved_numbers(self) -> int:
        """Saved statistics of a row: the mean as a pair and the variance, or the mean square."""
        return 3 if self.centred else 1


LAYER_NORM = Norm(centred=True)
RMS_NORM = Norm(centred=False)


class Settings(NamedTuple):
    """Arguments of a call other than its arrays."""

    norm: Norm
    eps: float
    rounding: Rounding
    backend: str
    """Backend of the forward pass. The meaning of saved statistics depends on it."""

    threads: int | None = None
    """Largest number of threads; None lets the backend choose."""


class Parameter:
    """gamma or beta as a row of float64.

    Attributes
    ----------
    values : ndarray
        The parameter, or its default if it was not passed.
    finite : ndarray
        The same, with zero in place of infinities and NaN.
    float_format : FloatFormat or None
        Format of the parameter, and of its gradient. None if it was not passed.
    """

    def __init__(self, values: Float64, float_format: FloatFormat | None) -> None:
        self.values, self.float_format = values, float_format
        self.finite = finite_part(values)

    @property
    def is_finite(self) -> bool:
        """True if no value is infinite or NaN."""
        return self.finite is self.values

    @property
    def fits_float32(self) -> bool:
        """True if all finite values lie in the range of float32, zeros included."""
        sizes = np.abs(self.finite[self.finite != 0])
        return bool(((sizes >= 2.0**-149) & (sizes < 2.0**128)).all())


@dataclass(slots=True)
class Call:
    """Everything that a backend knows about a call except its rows.

    x_format is the format of x, y, dy and dx. Kernels use the finite parts of gamma and beta;
    the driver writes the results that depend on infinities and NaN.
    """

    norm: Norm
    eps: float
    arithmetic: Arithmetic
    count: int
    size: int
    x_format: FloatFormat
    gamma: Parameter
    beta: Parameter
    threads: int | None

    @classmethod
    def of(cls, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter) -> "Call":
        """Return the call with these settings, rows and parameters."""
        formats = x.float_format, gamma.float_format, beta.float_format
        return cls(
            norm=settings.norm,
            eps=settings.eps,
            arithmetic=_arithmetic(settings.rounding, *formats),
            count=x.count,
            size=x.size,
            x_format=x.float_format,
            gamma=gamma,
            beta=beta,
            threads=settings.threads,
        )


def finite_part(values: Float64) -> Float64:
    """Return the values with zero in place of infinities and NaN; no copy if all are finite."""
    finite = np.isfinite(values)
    return values if finite.all() else np.where(finite, values, 0.0)


def _arithmetic(rounding: Rounding, x: FloatFormat, *parameters: FloatFormat | None) -> Arithmetic:
    """Return the arithmetic of a call with these formats."""
    if rounding == "fast" and x is FLOAT64:
        return "fast64"
    if FLOAT64 in (x, *parameters):
        return "tier2"
    return "fast32" if rounding == "fast" else "tier1"
