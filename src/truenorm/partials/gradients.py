"""Partial gradients: sums over rows of dgamma and dbeta as integers, which merge exactly."""

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from truenorm.api import arguments
from truenorm.api.arguments import as_gradient
from truenorm.api.saved import Saved, check_saved
from truenorm.api.settings import check_arithmetic
from truenorm.exact import Term, round_sum_of_roots
from truenorm.kernels import fallback
from truenorm.kernels.call import Call, Parameter
from truenorm.kernels.fixed_point import FixedPoint, columns_and_error, round_columns
from truenorm.kernels.native.availability import core_or_none
from truenorm.kernels.rows import Rows
from truenorm.kernels.special import IS_NAN, SpecialSum
from truenorm.partials import wire
from truenorm.partials.wire import MAX_ROWS, Flags, Signature, check_range

CORE: Any = core_or_none()
"""Takes a tenth of the time of NumPy; None if it is not built."""

ROWS_REMEDY = "merge fewer rows, and leave bytes and words unchanged"


class RoundedGradients(NamedTuple):
    """Gradients of gamma and beta; None for an absent gamma or beta.

    Attributes
    ----------
    dgamma, dbeta : ndarray or None
        Of the shape and type of gamma and beta.
    undecided : ndarray of int
        Columns, in C order, whose dgamma is not proven to be correctly rounded. Such a sum cannot
        be distinguished from zero or from a tie, and is rounded as if it were that. If all terms
        of a column are far below the largest of their rows, by 2**40 for instance, only a few
        digits may be known. Then dgamma is the middle of the possible values.
    """

    dgamma: NDArray[Any] | None
    dbeta: NDArray[Any] | None
    undecided: NDArray[np.intp]


def add(a: FixedPoint, b: FixedPoint) -> FixedPoint:
    """Return a + b in canonical form."""
    if CORE is None:
        return a.plus(b)
    return FixedPoint.of_core(
        CORE.add_numbers(a.first, a.limbs, b.first, b.limbs), a.limbs.shape[1]
    )


@dataclass(frozen=True, eq=False, repr=False)
class PartialGradients:
    """Sums over some rows of dgamma and dbeta, as integers that merge exactly.

    The terms of each row are rounded once, to a unit that depends on that row alone, and added as
    integers. So ``a + b`` is exact, associative and commutative. Partials of the same rows have
    equal bytes for any batches, order, ranks and backends.

    A partial is immutable. ``a + b`` and ``sum(partials)`` merge, ``==`` compares.

    Attributes
    ----------
    kind : Signature
        The norm, eps, shape and types; only partials of the same kind merge.
    rows : int
        The number of rows summed.

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

    kind: Signature
    rows: int
    _dgamma: FixedPoint = field()
    """One column more than gamma has: the sum of the units that terms were rounded to."""
    _dbeta: FixedPoint = field()
    _special: Flags = field()
    """Of shape (2, columns): flags of the non-finite terms of dgamma and of dbeta."""
    _has_special: bool = field()
    """True if a flag is set: searching for one takes as long as an addition."""

    @classmethod
    def _of(
        cls, kind: Signature, rows: int, dgamma: FixedPoint, dbeta: FixedPoint, special: Flags
    ) -> Self:
        """Return the canonical form: a column with a flag has no limbs."""
        has_special = bool(special.any())
        if has_special:
            special = np.where(special & IS_NAN, IS_NAN, special)
            flagged = special != 0
            dgamma = dgamma.without(np.append(flagged[0], False))
            dbeta = dbeta.without(flagged[1])
        return cls._of_finite(kind, rows, dgamma, dbeta, special, has_special=has_special)

    @classmethod
    def _of_finite(
        cls,
        kind: Signature,
        rows: int,
        dgamma: FixedPoint,
        dbeta: FixedPoint,
        special: Flags,
        *,
        has_special: bool = False,
    ) -> Self:
        """Return a partial in canonical form, without the search for flags."""
        check_range("rows", rows, 0, MAX_ROWS, ROWS_REMEDY)
        return cls(kind, rows, dgamma, dbeta, special, has_special)

    def __add__(self, other: Any) -> "PartialGradients":
        """Return the partial over the rows of both."""
        if not isinstance(other, PartialGradients):
            return NotImplemented
        if self.kind != other.kind:
            self.kind.check_same(other.kind)
        rows = self.rows + other.rows
        dgamma, dbeta = add(self._dgamma, other._dgamma), add(self._dbeta, other._dbeta)
        if not (self._has_special or other._has_special):
            return self._of_finite(self.kind, rows, dgamma, dbeta, self._special)
        return self._of(self.kind, rows, dgamma, dbeta, self._special | other._special)

    def __radd__(self, other: Any) -> "PartialGradients":
        """Let `sum` begin with 0."""
        return self if type(other) is int and other == 0 else NotImplemented

    def __eq__(self, other: Any) -> bool:
        """Return True if the other has the same kind, number of rows and sums."""
        if not isinstance(other, PartialGradients):
            return NotImplemented
        return self.tobytes() == other.tobytes()

    def __hash__(self) -> int:
        """Return a hash of the bytes."""
        return hash(self.tobytes())

    def __repr__(self) -> str:
        """Show the norm, the rows and the memory."""
        return (
            f"<truenorm.PartialGradients of {self.kind.norm.name}: {self.rows} rows of "
            f"{self.kind.size} {self.kind.x}, {self.nbytes} bytes>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as bytes."""
        return type(self).frombuffer, (self.tobytes(),)

    def rounded(self, divide_by: int = 1) -> RoundedGradients:
        """Return dgamma and dbeta, rounded once.

        Parameters
        ----------
        divide_by : int
            Divisor of the sums before rounding, the number of micro-batches for instance: from 1
            to 2**53.

        Returns
        -------
        RoundedGradients
            dgamma, dbeta and the undecided columns of dgamma. Such a sum cannot be distinguished
            from zero or from a tie; `refine` decides it. Ordinary rows have nearly never one; rows
            beside a far larger element may have many.

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
        divisor = _check_divisor(divide_by)
        check_arithmetic()
        dgamma = dbeta = None
        undecided = np.empty(0, np.intp)
        if self.kind.gamma is not None:
            columns, error = columns_and_error(self._dgamma)
            values, undecided = round_columns(columns, error, divisor, self.kind.target("gamma"))
            SpecialSum.of_flags(self._special[0]).apply(values)
            undecided = undecided[self._special[0][undecided] == 0]
            dgamma = as_gradient(values, self.kind.gamma, self.kind.shape)
        if self.kind.beta is not None:
            values, _ = round_columns(self._dbeta, 0, divisor, self.kind.target("beta"))
            SpecialSum.of_flags(self._special[1]).apply(values)
            dbeta = as_gradient(values, self.kind.beta, self.kind.shape)
        return RoundedGradients(dgamma, dbeta, undecided)

    def refine(self, batches: Iterable[tuple[Any, Saved]], divide_by: int = 1) -> RoundedGradients:
        """Return dgamma and dbeta, rounded once, with all columns decided.

        Parameters
        ----------
        batches : iterable of (dy, saved)
            All rows of this partial, as they were passed to backward.
        divide_by : int
            As in `rounded`.

        Returns
        -------
        RoundedGradients
            Without undecided columns: those are computed again in integers.

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
        divisor, rounded = _check_divisor(divide_by), self.rounded(divide_by)
        if rounded.dgamma is None or not len(rounded.undecided):
            return rounded
        terms: list[list[Term]] = [[] for _ in rounded.undecided]
        rows = 0
        for dy, saved in _pairs(batches):
            check_saved(self.kind.norm, saved, "_backward_partial")
            self.kind.check_same(Signature.of(saved))
            dy_array, target = arguments.dy_of(dy, saved.x)
            dy_rows, x_rows = (Rows(array, saved.axes, target) for array in (dy_array, saved.x))
            rows += x_rows.count
            zeros = Parameter(np.zeros(self.kind.size), None)
            call = Call.of(saved.settings, x_rows, zeros, zeros)
            batch_terms = fallback.terms_of(dy_rows, x_rows, rounded.undecided, call)
            for column, column_terms in zip(terms, batch_terms, strict=True):
                column += [
                    term._replace(denominator=term.denominator * divisor)
                    for term in column_terms
                    if term.numerator
                ]
        if rows != self.rows:
            raise ValueError(f"batches must have {self.rows} rows, got {rows}: pass all of them")
        dgamma = rounded.dgamma.astype(np.float64).ravel()
        target = self.kind.target("gamma")
        dgamma[rounded.undecided] = [round_sum_of_roots(column, target) for column in terms]
        assert self.kind.gamma is not None
        return RoundedGradients(
            as_gradient(dgamma, self.kind.gamma, self.kind.shape),
            rounded.dbeta,
            np.empty(0, np.intp),
        )

    @property
    def nbytes(self) -> int:
        """Memory in use, in bytes."""
        limbs = self._dgamma.limbs.nbytes + self._dbeta.limbs.nbytes
        return limbs + self._special.nbytes

    def tobytes(self) -> bytes:
        """Return the bytes: equal for equal partials, on every machine.

        docs/reference/partial-format.md specifies them. They have a version and a checksum, and
        contain no code.

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
        return wire.encode(self.kind, self.rows, self._dgamma, self._dbeta, self._special)

    @classmethod
    def frombuffer(cls, data: Any) -> Self:
        """Return the partial with these bytes.

        Parameters
        ----------
        data : bytes-like
            The result of `tobytes`.

        Returns
        -------
        PartialGradients
            Equal to the partial that was encoded.

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
            encoded = memoryview(data).tobytes()
        except TypeError as error:
            raise TypeError(
                f"data must be a bytes-like object, got {type(data).__name__}: {wire.BYTES_REMEDY}"
            ) from error
        partial = cls._of(*wire.decode(encoded))
        if partial.tobytes() != encoded:
            raise ValueError(f"expected bytes in canonical form, got others: {wire.BYTES_REMEDY}")
        return partial

    def extent(self) -> NDArray[np.int64]:
        """Return the limbs in use; `to_words` takes the elementwise maximum over all ranks.

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
        """Return integers whose sum over ranks represents the merged partial.

        For collectives that only add int64 arrays, as those of MPI and NCCL do.

        Parameters
        ----------
        extent : ndarray of int64
            The elementwise maximum of `extent` over all ranks.

        Returns
        -------
        ndarray of int64
            Of the same length on every rank.

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
        return wire.to_words(self.rows, self._dgamma, self._dbeta, self._special, extent)

    def from_words(self, words_: NDArray[np.int64], extent: NDArray[np.int64]) -> Self:
        """Return the partial of a sum of words, of the same kind as this one.

        Parameters
        ----------
        words_ : ndarray of int64
            The sum of the words of at most 2**20 ranks.
        extent : ndarray of int64
            The argument of `to_words`.

        Returns
        -------
        PartialGradients
            Over the rows of all ranks.

        Raises
        ------
        TypeError
            If `words_` is not int64, or `extent` is not an array of integers.
        ValueError
            If `extent` is malformed, or does not fit the number of words.
        OverflowError
            If more than 2**20 partials were added.

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
        return self._of(self.kind, *wire.from_words(words_, extent, self.kind.size))


def _check_divisor(divide_by: Any) -> int:
    """Return the divisor as an int; raise ValueError if it is out of range."""
    try:
        divisor = operator.index(divide_by)
    except TypeError:
        divisor = 0
    if not 1 <= divisor <= 2**53:
        raise ValueError(f"divide_by must be an integer from 1 to 2**53, got {divide_by!r}")
    return divisor


def _pairs(batches: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the batches; raise TypeError for anything but pairs."""
    for pair in batches if isinstance(batches, Iterable) else [batches]:
        if not (isinstance(pair, Sequence) and len(pair) == 2):
            raise TypeError(
                "batches must be an iterable of pairs (dy, saved), got "
                f"{'an element' if isinstance(batches, Iterable) else 'a value'} of type "
                f"{type(pair).__name__}"
            )
        yield pair[0], pair[1]
