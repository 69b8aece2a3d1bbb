"""What a partial holds, and the two forms in which it travels: bytes, and words to be added up."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.drive.partial import Share
from truenorm.kernels.lattice.digits import Number
from truenorm.kernels.special import IS_NAN
from truenorm.partials import coding, words
from truenorm.partials.kind import Kind
from truenorm.partials.places import MOST_ROWS, check_range

__all__ = ["HeldSums"]

REMEDY = "merge fewer rows, and leave bytes and words unchanged"


@dataclass(frozen=True, eq=False, repr=False)
class HeldSums:
    """Sums over rows as integers, with what belongs to them."""

    kind: Kind
    rows: int
    _dgamma: Number = field()
    """One column more than gamma has: the sum of the units that terms were rounded to."""
    _dbeta: Number = field()
    _special: NDArray[np.uint8] = field()
    """Of shape (2, columns): what is not finite among the terms of dgamma and of dbeta."""
    _is_flagged: bool = field()
    """True if a flag is set: to look for one takes as long as to add digits."""

    @classmethod
    def _of(
        cls, kind: Kind, rows: int, dgamma: Number, dbeta: Number, special: NDArray[np.uint8]
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
        cls, kind: Kind, rows: int, dgamma: Number, dbeta: Number, flags: NDArray[np.uint8]
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
        digits = self._dgamma.digits.nbytes + self._dbeta.digits.nbytes
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
        return coding.encoded(self.kind, self.rows, self._dgamma, self._dbeta, self._special)

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
                f"data must be a bytes-like object, got {type(data).__name__}: {coding.REMEDY}"
            ) from error
        partial = cls._of(*coding.decoded(given))
        if partial.tobytes() != given:
            raise ValueError(f"expected bytes in canonical form, got others: {coding.REMEDY}")
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
        return words.as_words(self.rows, self._dgamma, self._dbeta, self._special, extent)

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
        return self._of(self.kind, *words.of_words(words_, extent, self.kind.size))
