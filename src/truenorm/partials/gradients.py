"""Gradients of gamma and beta over some rows: sums of integers, which merge exactly."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.drive.partial import Share
from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.special import IS_NAN, SpecialSum
from truenorm.ops.output import as_parameter
from truenorm.ops.saved import Saved
from truenorm.partials import coding, refining, words
from truenorm.partials.kind import Kind
from truenorm.partials.rounding import RoundedGradients, round_columns

__all__ = ["PartialGradients"]


@dataclass(frozen=True, eq=False, repr=False)
class PartialGradients:
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

    kind: Kind
    rows: int
    _dgamma: Number = field()
    """One column more than gamma has: the sum of the units that terms were rounded to."""
    _dbeta: Number = field()
    _special: NDArray[np.uint8] = field()
    """Of shape (2, columns): what is not finite among the terms of dgamma and of dbeta."""

    @classmethod
    def _of(
        cls, kind: Kind, rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8]
    ) -> "PartialGradients":
        """Return the one form: where terms are not finite the others do not matter."""
        special = np.where(special & IS_NAN, IS_NAN, special)
        there = special != 0
        return cls(
            kind,
            rows,
            dgamma.without(np.append(there[0], False)),
            dbeta.without(there[1]),
            special,
        )

    @classmethod
    def _of_share(cls, kind: Kind, rows: int, share: Share) -> "PartialGradients":
        special = np.stack([share.of_dgamma, share.of_dbeta])
        return cls._of(kind, rows, share.dgamma, share.dbeta, special)

    def __add__(self, other: Any) -> "PartialGradients":
        """Return the partial over the rows of both."""
        if not isinstance(other, PartialGradients):
            return NotImplemented
        self.kind.check_same(other.kind)
        return self._of(
            self.kind,
            self.rows + other.rows,
            self._dgamma.plus(other._dgamma),
            self._dbeta.plus(other._dbeta),
            self._special | other._special,
        )

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

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        digits = self._dgamma.digits.nbytes + self._dbeta.digits.nbytes
        return digits + self._special.nbytes

    def tobytes(self) -> bytes:
        """Return its bytes: equal for equal partials, on every machine.

        The format is that of docs/scale.md, with a version; nothing in it is executed.
        """
        return coding.encoded(self.kind, self.rows, self._dgamma, self._dbeta, self._special)

    @classmethod
    def frombuffer(cls, data: Any) -> "PartialGradients":
        """Return the partial that has such bytes.

        Parameters
        ----------
        data : bytes-like
            What `tobytes` returned.

        Returns
        -------
        PartialGradients
            Equal to the one they are of.
        """
        return cls(*coding.decoded(bytes(data)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as bytes."""
        return PartialGradients.frombuffer, (self.tobytes(),)

    def extent(self) -> NDArray[np.int64]:
        """Return which places are used: the maximum over all ranks is what `to_words` is given.

        Returns
        -------
        ndarray of int64
            Five numbers.
        """
        return words.extent(self._dgamma, self._dbeta, self._special)

    def to_words(self, extent: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return it as integers whose sum over ranks is that of the merged partial.

        For collectives that know int64 and SUM alone, MPI's and NCCL's for instance.

        Parameters
        ----------
        extent : ndarray of int64
            The elementwise maximum of `extent` over all ranks.

        Returns
        -------
        ndarray of int64
            As many on every rank.
        """
        return words.as_words(self.rows, self._dgamma, self._dbeta, self._special, extent)

    def from_words(
        self, words_: NDArray[np.int64], extent: NDArray[np.int64]
    ) -> "PartialGradients":
        """Return the partial, of the kind of this one, that such words are of.

        Parameters
        ----------
        words_ : ndarray of int64
            The sum of what `to_words` returned on at most 2**20 ranks.
        extent : ndarray of int64
            What was given to `to_words`.

        Returns
        -------
        PartialGradients
            Over the rows of all ranks.
        """
        return self._of(self.kind, *words.of_words(words_, extent, self.kind.size))

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
        """
        if not 1 <= divide_by <= 2**53 or int(divide_by) != divide_by:
            raise ValueError(f"divide_by is {divide_by!r}: pass an integer from 1 to 2**53")
        dgamma = dbeta = None
        undecided = np.empty(0, np.intp)
        divisor = int(divide_by)
        if self.kind.gamma is not None:
            units = self._dgamma.integers(np.array([self.kind.size]))[0]
            columns = Number(self._dgamma.first, self._dgamma.digits[:, :-1])
            # Each term is off by at most half its unit (L4).
            values, undecided = round_columns(
                columns, -(-units // 2), divisor, self.kind.target("gamma")
            )
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
        """
        return refining.refined(self.kind, self.rows, self.rounded(divide_by), batches, divide_by)
