"""Gradients of gamma and beta over some rows: sums of integers, which merge exactly."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from truenorm.kernels.lattice.rounding import columns_and_error, round_columns
from truenorm.kernels.special import SpecialSum
from truenorm.ops.output import as_parameter
from truenorm.ops.saved import Saved
from truenorm.partials import refining
from truenorm.partials.held import HeldSums
from truenorm.partials.merging import added
from truenorm.partials.rounding import RoundedGradients

__all__ = ["PartialGradients"]


@dataclass(frozen=True, eq=False, repr=False)
class PartialGradients(HeldSums):
    """What some rows add to dgamma and dbeta, such that sums of it are exact.

    Every row's terms are rounded once, to a unit that the row alone decides, and added up as
    integers. So ``a + b`` is exact, associative and commutative: partials of the same rows are
    equal to the byte, whatever the batches, their order, the ranks and the backends.

    It cannot be changed. ``a + b`` and ``sum(partials)`` merge, ``==`` compares.

    Attributes
    ----------
    kind : Kind
        Which calls it belongs to: only partials of the same kind merge.
    rows : int
        How many rows it is over.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x, dy = np.random.default_rng(0).standard_normal((2, 6, 4)).astype(np.float32)
    >>> gamma, beta = np.ones((2, 4), np.float32)
    >>> def partial(rows):
    ...     _, saved = tn.layer_norm_forward(x[rows], gamma, beta)
    ...     return tn.layer_norm_backward_partial(dy[rows], saved)[1]
    >>> whole, parts = partial(slice(6)), partial(slice(4, 6)) + partial(slice(4))
    >>> parts == whole, parts.tobytes() == whole.tobytes()
    (True, True)
    >>> dgamma, dbeta, undecided = parts.rounded()
    >>> _, saved = tn.layer_norm_forward(x, gamma, beta)
    >>> np.array_equal(dgamma, tn.layer_norm_backward(dy, saved).dgamma)
    True
    """

    def __add__(self, other: Any) -> "PartialGradients":
        """Return the partial over the rows of both."""
        if not isinstance(other, PartialGradients):
            return NotImplemented
        if self.kind != other.kind:
            self.kind.check_same(other.kind)
        rows = self.rows + other.rows
        dgamma, dbeta = added(self._dgamma, other._dgamma), added(self._dbeta, other._dbeta)
        if not (self._is_flagged or other._is_flagged):
            return self._of_finite(self.kind, rows, dgamma, dbeta, self._special)
        return self._of(self.kind, rows, dgamma, dbeta, self._special | other._special)

    def __radd__(self, other: Any) -> "PartialGradients":
        """Let `sum` begin with 0."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: Any) -> bool:
        """Tell whether the other is over the same rows, or over others with the same sums."""
        if not isinstance(other, PartialGradients):
            return NotImplemented
        return self.tobytes() == other.tobytes()

    def __hash__(self) -> int:
        """Return a hash of its bytes."""
        return hash(self.tobytes())

    def __repr__(self) -> str:
        """Tell what it is over, and how large it is."""
        return (
            f"<truenorm.PartialGradients of {self.kind.norm.name}: {self.rows} rows of "
            f"{self.kind.size} {self.kind.x}, {self.nbytes} bytes>"
        )

    def rounded(self, divide_by: int = 1) -> RoundedGradients:
        """Return dgamma and dbeta, rounded once.

        Parameters
        ----------
        divide_by : int
            What the sums are divided by before they are rounded, the number of micro-batches for
            instance: from 1 to 2**53.

        Returns
        -------
        RoundedGradients
            dgamma, dbeta and the columns of dgamma that are undecided: nearly always none. There
            a sum cannot be told from zero or from a tie, and is taken for that; `refine` decides.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> print(partial.rounded(divide_by=2).dgamma)
        [0.5851849 0.774167  1.4162663]
        """
        divisor = _divisor(divide_by)
        dgamma = dbeta = None
        undecided = np.empty(0, np.intp)
        if self.kind.gamma is not None:
            columns, error = columns_and_error(self._dgamma)
            values, undecided = round_columns(columns, error, divisor, self.kind.target("gamma"))
            SpecialSum.of_flags(self._special[0]).apply(values)
            undecided = undecided[self._special[0][undecided] == 0]
            dgamma = as_parameter(values, self.kind.gamma, self.kind.lengths)
        if self.kind.beta is not None:
            values, _ = round_columns(self._dbeta, 0, divisor, self.kind.target("beta"))
            SpecialSum.of_flags(self._special[1]).apply(values)
            dbeta = as_parameter(values, self.kind.beta, self.kind.lengths)
        return RoundedGradients(dgamma, dbeta, undecided)

    def refine(self, batches: Iterable[tuple[Any, Saved]], divide_by: int = 1) -> RoundedGradients:
        """Return dgamma and dbeta, rounded once, with nothing undecided.

        Parameters
        ----------
        batches : iterable of (dy, saved)
            All the rows that this partial is over, as they were passed to backward.
        divide_by : int
            As in `rounded`.

        Returns
        -------
        RoundedGradients
            With an empty list of undecided columns: those are computed again in integers.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 3], [1, 2, 3]], np.float32)
        >>> dy = np.array([[1, 1, 1], [-1, -1, -1]], np.float32)  # all of dgamma is zero
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(dy, saved)
        >>> len(partial.rounded().undecided), len(partial.refine([(dy, saved)]).undecided)
        (3, 0)
        """
        return refining.refined(
            self.kind, self.rows, self.rounded(divide_by), batches, _divisor(divide_by)
        )


def _divisor(divide_by: Any) -> int:
    """Return what sums are divided by, checked."""
    try:
        divisor = operator.index(divide_by)
    except TypeError:
        divisor = 0
    if not 1 <= divisor <= 2**53:
        raise ValueError(f"divide_by is {divide_by!r}: pass an integer from 1 to 2**53")
    return divisor
