"""Backward passes over some rows of a batch, which return partial gradients."""

from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from truenorm.api import fast_path
from truenorm.api.arguments import hide_unknown, unexpected
from truenorm.api.run import by_driver
from truenorm.api.saved import Saved, check_saved
from truenorm.api.settings import check_arithmetic, settings_of_backward
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Norm
from truenorm.kernels.driver import backward_partial
from truenorm.kernels.fixed_point import FixedPoint
from truenorm.partials.gradients import PartialGradients
from truenorm.partials.wire import Signature

__all__ = ["layer_norm_backward_partial", "rms_norm_backward_partial"]

Array = NDArray[Any]


@hide_unknown
def layer_norm_backward_partial(
    dy: Any,
    saved: Saved,
    *more: object,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> tuple[Array, PartialGradients]:
    """Compute the backward pass of layer norm over some rows of a batch.

    dx is complete. dgamma and dbeta are sums over the whole batch, so the call returns a partial
    of them. Partials of micro-batches or ranks, added and then rounded, have the bits of one call
    with all rows, for any split, in every column but those that `PartialGradients.rounded` lists.

    Parameters
    ----------
    dy, saved, out, backend, threads
        As in `layer_norm_backward`. x, gamma and beta must be float32 or smaller, and the
        forward pass must have had rounding="correct".

    Returns
    -------
    dx : ndarray
        Of the shape and type of x.
    partial : PartialGradients
        The sums over these rows of dgamma and dbeta.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([[1, 2, 4], [3, 3, 5]], np.float32)
    >>> gamma, beta = np.ones(3, np.float32), np.zeros(3, np.float32)
    >>> total = 0
    >>> for row in x:
    ...     y, saved = tn.layer_norm_forward(row, gamma, beta)
    ...     dx, partial = tn.layer_norm_backward_partial(np.ones_like(row), saved)
    ...     total = total + partial
    >>> total
    <truenorm.PartialGradients of layer_norm: 2 rows of 3 float32, ... bytes>
    >>> print(total.rounded(divide_by=2).dbeta)
    [1. 1. 1.]
    """
    if more or unknown:
        raise unexpected(LAYER_NORM, layer_norm_backward_partial, more, unknown)
    return _backward(LAYER_NORM, dy, saved, out, backend, threads)


@hide_unknown
def rms_norm_backward_partial(
    dy: Any,
    saved: Saved,
    *more: object,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
    **unknown: Never,
) -> tuple[Array, PartialGradients]:
    """Compute the backward pass of RMSNorm over some rows of a batch.

    Parameters
    ----------
    dy, saved, out, backend, threads
        As in `layer_norm_backward_partial`.

    Returns
    -------
    dx : ndarray
        Of the shape and type of x.
    partial : PartialGradients
        The sums over these rows of dgamma.

    Examples
    --------
    >>> import numpy as np
    >>> import truenorm as tn
    >>> x = np.array([[3, 4]], np.float32)
    >>> y, saved = tn.rms_norm_forward(x, np.ones(2, np.float32), eps=0.0)
    >>> dx, partial = tn.rms_norm_backward_partial(np.ones_like(x), saved)
    >>> print((partial + partial).rounded().dgamma)
    [1.6970563 2.2627418]
    """
    if more or unknown:
        raise unexpected(RMS_NORM, rms_norm_backward_partial, more, unknown)
    return _backward(RMS_NORM, dy, saved, out, backend, threads)


def _backward(
    norm: Norm,
    dy: Any,
    saved: Saved,
    out: Any,
    backend: str | None,
    threads: int | None,
) -> tuple[Array, PartialGradients]:
    check_saved(norm, saved, "_backward_partial")
    if not isinstance(saved.x, np.ndarray):
        raise TypeError("x must be a NumPy array, got an array on a device: copy it to one")
    kind = Signature.of(saved)
    results = fast_path.backward_partial(norm, dy, saved, out, backend, threads, None)
    rows = len(saved.statistics)
    if results is not NotImplemented:
        dx, of_dgamma, of_dbeta = results
        dgamma = FixedPoint.of_core(of_dgamma, kind.size + 1)
        dbeta = FixedPoint.of_core(of_dbeta, kind.size)
        special = np.zeros((2, kind.size), np.uint8)
        return dx, PartialGradients._of_finite(kind, rows, dgamma, dbeta, special)
    chosen, settings = settings_of_backward(saved.settings, backend, threads)
    check_arithmetic()
    dx, sums = by_driver(backward_partial, chosen, settings, dy, saved, out)
    special = np.stack([sums.dgamma_flags, sums.dbeta_flags])
    return dx, PartialGradients._of(kind, rows, sums.dgamma, sums.dbeta, special)
