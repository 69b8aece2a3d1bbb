"""Backward of rows with infinities that are not centred.

There r = 0, so that xhat is 0 beside infinities, and of them NaN (D33): such a row spoils its dx
and the columns of its infinities, but not the rest of dgamma. Other rows are done without it.
"""

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.norm import Norm
from truenorm.kernels.rounding import canonical_nan
from truenorm.kernels.rows import Rows, Source, Target
from truenorm.kernels.special import SpecialSum, has_infinity, signs
from truenorm.kernels.storage import widen

__all__ = ["BesideInfinities", "infinite_rows"]

Float64 = NDArray[np.float64]


def infinite_rows(norm: Norm, x: Rows, kept: Float64) -> NDArray[np.intp]:
    """Return the rows of which infinities spare the elements beside them."""
    if norm.centred:
        return np.empty(0, np.intp)
    undefined = np.flatnonzero(np.isnan(kept[:, 0]))
    if not len(undefined):
        return undefined
    return undefined[has_infinity(widen(Source(x).copy(undefined), x.target))]


class BesideInfinities:
    """All rows but those with infinities, as copies.

    Attributes
    ----------
    rows : ndarray
        Which they are.
    dy, x, dx : Rows
        What they are; dx is to be written.
    dgamma : SpecialSum
        What the infinities make of dgamma. A norm that is not centred has no dbeta.
    """

    def __init__(
        self, norm: Norm, infinite: NDArray[np.intp], dy: Rows, x: Rows, dx: Rows
    ) -> None:
        self.rows = np.delete(np.arange(x.count), infinite)
        self._found = np.empty((len(self.rows), x.size), canonical_nan(x.target).dtype)
        given = Source(dy), Source(x)
        self.dy, self.x, self.dx = (
            Rows(block, (1,), x.target)
            for block in (*(each.copy(self.rows) for each in given), self._found)
        )
        self._output, self._infinite = Target(dx), infinite
        self.dgamma = SpecialSum(x.size)
        slopes, values = (widen(each.copy(infinite), x.target) for each in given)
        self.dgamma.add(slopes * signs(values, norm))

    def write_dx(self) -> None:
        """Put dx of all rows where it belongs."""
        self._output.write(self.rows, self._found)
        nothing = np.full((len(self._infinite), self.x.size), canonical_nan(self.x.target))
        self._output.write(self._infinite, nothing)
