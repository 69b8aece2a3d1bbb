"""What a result of very many elements is from where on it is wrong."""

import numpy as np
from numpy.typing import NDArray

from truenorm.verify.types import Array

__all__ = ["beyond"]

FLOAT32 = 24
"""The bits of a place that float32 can count to."""


def beyond(copies: Array) -> str:
    """Say what stands beyond some power of two elements, where copies are no longer the first.

    Examples
    --------
    >>> import numpy as np
    >>> copies = np.tile(np.arange(1.0, 4.0), (6, 1))
    >>> copies.reshape(-1)[16:] = 0
    >>> beyond(copies)
    '0 from element 2^4 on: these are not written'
    """
    flat, right = copies.reshape(-1), copies[0].reshape(-1)
    wrong = (copies != copies[0]).reshape(-1)
    at = int(np.argmax(wrong))
    if not wrong[at] or not np.isfinite(right).all():
        return ""
    power = at.bit_length() - 1
    places = np.arange(1 << power, flat.size)
    came = flat[places]

    def is_at(others: NDArray[np.int64]) -> bool:
        return np.array_equal(came, right[np.minimum(others, flat.size - 1) % right.size])

    if not came.any():
        return f"0 from element 2^{power} on: these are not written"
    if power == FLOAT32 and is_at(places.astype(np.float32).astype(np.int64)):
        return f"wrong from element 2^{power} on: places are counted in float32"
    if is_at(places - (1 << power)):
        return f"wrong from element 2^{power} on: there it begins anew"
    return ""
