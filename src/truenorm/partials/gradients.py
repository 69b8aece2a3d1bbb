"""The sum of two numbers: by the C core where it is built, by NumPy elsewhere."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from truenorm.api import arguments
from truenorm.api.arguments import as_parameter
from truenorm.api.saved import Saved
from truenorm.exact import Term, round_sum_of_roots
from truenorm.kernels import fallback
from truenorm.kernels.call import Call, Parameter
from truenorm.kernels.driver import Share
from truenorm.kernels.fixed_point import FixedPoint, columns_and_error, round_columns
from truenorm.kernels.native.availability import core_or_none
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import IS_NAN, SpecialSum
from truenorm.partials import wire
from truenorm.partials.wire import MOST_ROWS, Kind, check_range

CORE: Any = core_or_none()
"""Takes a tenth of the time of NumPy; None if it is not built."""


def added(a: FixedPoint, b: FixedPoint) -> FixedPoint:
    """Return a + b in canonical form."""
    if CORE is None:
        return a.plus(b)
    return FixedPoint.of_core(
        CORE.add_numbers(a.first, a.limbs, b.first, b.limbs), a.limbs.shape[1]
    )


class RoundedGradients(NamedTuple):
    """Gradients of gamma and beta; None where there was no gamma or beta.

    Attributes
    ----------
    dgamma, dbeta : ndarray or None
        Of the shape and type of gamma and beta.
    undecided : ndarray of int
        Columns, in C order, whose dgamma is not proven to be the exact answer rounded: it is what
        rounds correctly if the sum is the zero or the tie that it cannot be told from. A column
        whose terms are all far below the largest of their rows, by 2**40 for instance, may be
        known to a few digits only: then it is the middle of what it can be.
    """

    dgamma: NDArray[Any] | None
    dbeta: NDArray[Any] | None
    undecided: NDArray[np.intp]


REMEDY = "merge fewer rows, and leave bytes and words unchanged"


@dataclass(frozen=True, eq=False, repr=False)
class HeldSums:
    """Sums over rows as integers, with what belongs to them."""

    kind: Kind
    rows: int
    _dgamma: FixedPoint = field()
    """One column more than gamma has: the sum of the units that terms were rounded to."""
    _dbeta: FixedPoint = field()
    _special: NDArray[np.uint8] = field()
    """Of shape (2, columns): what is not finite among the terms of dgamma and of dbeta."""
    _is_flagged: bool = field()
    """True if a flag is set: to look for one takes as long as to add digits."""

    @classmethod
    def _of(
        cls,
        kind: Kind,
        rows: int,
        dgamma: FixedPoint,
        dbeta: FixedPoint,
        special: NDArray[np.uint8],
    ) -> Self:
        """Return the canonical form: a column with a flag has no digits.

        `rows` is checked here, whatever a partial is made from.
        """
        check_range("rows", rows, 0, MOST_ROWS, REMEDY)
        is_flagged = bool(special.any())
        if is_flagged:
            special = np.where(special & IS_NAN, IS_NAN, special)
            there = special != 0
            dgamma = dgamma.without(np.append(there[0], False))
            dbeta = dbeta.without(there[1])
        return cls(kind, rows, dgamma, dbeta, special, is_flagged)

    @classmethod
    def _of_finite(
        cls, kind: Kind, rows: int, dgamma: FixedPoint, dbeta: FixedPoint, flags: NDArray[np.uint8]
    ) -> Self:
        """Return the canonical form of sums of finite terms; no flag is set."""
        check_range("rows", rows, 0, MOST_ROWS, REMEDY)
        return cls(kind, rows, dgamma, dbeta, flags, False)

    @classmethod
    def _of_share(cls, kind: Kind, rows: int, share: Share) -> Self:
        special = np.stack([share.of_dgamma, share.of_dbeta])
        return cls._of(kind, rows, share.dgamma, share.dbeta, special)

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        digits = self._dgamma.limbs.nbytes + self._dbeta.limbs.nbytes
        return digits + self._special.nbytes

    def tobytes(self) -> bytes:
        """Return its bytes: equal for equal partials, on every machine.

        docs/scale.md describes the format. It has a version and a checksum, and nothing in it is
        executed.

        Returns
        -------
        bytes
            For `frombuffer`.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> partial.tobytes()[:16]
        b'truenorm partial'
        """
        return wire.encoded(self.kind, self.rows, self._dgamma, self._dbeta, self._special)

    @classmethod
    def frombuffer(cls, data: Any) -> Self:
        """Return the partial that has such bytes.

        Parameters
        ----------
        data : bytes-like
            What `tobytes` returned.

        Returns
        -------
        PartialGradients
            Equal to the one they are of.

        Raises
        ------
        TypeError
            If `data` is not a bytes-like object.
        ValueError
            If the bytes are damaged, incomplete or of another version of the format.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> tn.PartialGradients.frombuffer(partial.tobytes()) == partial
        True
        """
        try:
            given = memoryview(data).tobytes()
        except TypeError as error:
            raise TypeError(
                f"data must be a bytes-like object, got {type(data).__name__}: {wire.REMEDY}"
            ) from error
        partial = cls._of(*wire.decoded(given))
        if partial.tobytes() != given:
            raise ValueError(f"expected bytes in canonical form, got others: {wire.REMEDY}")
        return partial

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as bytes."""
        return type(self).frombuffer, (self.tobytes(),)

    def extent(self) -> NDArray[np.int64]:
        """Return which places are used: the maximum over all ranks is what `to_words` is given.

        Returns
        -------
        ndarray of int64
            Five numbers.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> partial.extent().shape
        (5,)
        """
        return wire.extent(self._dgamma, self._dbeta, self._special)

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

        Raises
        ------
        TypeError
            If `extent` is not an array of integers.
        ValueError
            If `extent` is malformed, or does not cover this partial.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> partial.to_words(partial.extent())[:2]  # 1 partial, over 2 rows
        array([1, 2])
        """
        return wire.as_words(self.rows, self._dgamma, self._dbeta, self._special, extent)

    def from_words(self, words_: NDArray[np.int64], extent: NDArray[np.int64]) -> Self:
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

        Raises
        ------
        TypeError
            If `words_` is not of int64, or `extent` not an array of integers.
        ValueError
            If `extent` is malformed, or the number of words is not that of this extent.
        OverflowError
            If more than 2**20 partials were added up.

        Examples
        --------
        >>> import numpy as np
        >>> import truenorm as tn
        >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
        >>> _, saved = tn.rms_norm_forward(x, np.ones(3, np.float32))
        >>> _, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
        >>> agreed = partial.extent()  # on two ranks that have the same rows
        >>> words = partial.to_words(agreed) + partial.to_words(agreed)
        >>> partial.from_words(words, agreed) == partial + partial
        True
        """
        return self._of(self.kind, *wire.of_words(words_, extent, self.kind.size))


def refined(
    kind: Kind,
    rows: int,
    found: RoundedGradients,
    batches: Iterable[tuple[Any, Saved]],
    divide_by: int,
) -> RoundedGradients:
    """Return the gradients with all columns decided."""
    if found.dgamma is None or not len(found.undecided):
        return found
    terms: list[list[Term]] = [[] for _ in found.undecided]
    count = 0
    for dy, saved in batches:
        kind.check_same(Kind.of(saved))
        slopes, target = arguments.dy_of(dy, saved.x)
        dy_rows, x_rows = (Rows(array, saved.axes, target) for array in (slopes, saved.x))
        count += x_rows.count
        nothing = Parameter(np.zeros(kind.size), None)
        call = Call.of(saved.settings, x_rows, nothing, nothing)
        more = fallback.terms_of(dy_rows, x_rows, found.undecided, call)
        for column, some in zip(terms, more, strict=True):
            column += [
                term._replace(denominator=term.denominator * divide_by)
                for term in some
                if term.numerator
            ]
    if count != rows:
        raise ValueError(f"the batches have {count} rows and the partial {rows}: pass all of them")
    dgamma = found.dgamma.astype(np.float64).ravel()
    target = kind.target("gamma")
    dgamma[found.undecided] = [round_sum_of_roots(column, target) for column in terms]
    assert kind.gamma is not None
    return RoundedGradients(
        as_parameter(dgamma, kind.gamma, kind.lengths), found.dbeta, np.empty(0, np.intp)
    )


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
        return refined(self.kind, self.rows, self.rounded(divide_by), batches, _divisor(divide_by))


def _divisor(divide_by: Any) -> int:
    """Return what sums are divided by, checked."""
    try:
        divisor = operator.index(divide_by)
    except TypeError:
        divisor = 0
    if not 1 <= divisor <= 2**53:
        raise ValueError(f"divide_by is {divide_by!r}: pass an integer from 1 to 2**53")
    return divisor
