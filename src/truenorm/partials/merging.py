"""The sum of two numbers: by the C core where it is built, by NumPy elsewhere."""

from typing import Any

from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.native.availability import core_or_none

__all__ = ["added"]

CORE: Any = core_or_none()
"""Takes a tenth of the time of NumPy; None if it is not built."""


def added(a: Number, b: Number) -> Number:
    """Return a + b in canonical form."""
    if CORE is None:
        return a.plus(b)
    return Number.of_core(
        CORE.add_numbers(a.first, a.digits, b.first, b.digits), a.digits.shape[1]
    )
