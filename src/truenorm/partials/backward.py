"""Backward passes over some rows of a batch, which return partial gradients."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truenorm.api.fast_path import CENTRED, SINGLE_THREAD_BELOW, as_stored, types_of_mode
from truenorm.api.run import by_driver
from truenorm.api.saved import Saved, check_saved
from truenorm.api.settings import check_arithmetic, settings_of_backward
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Norm, Settings
from truenorm.kernels.driver import backward_partial
from truenorm.kernels.fixed_point import FixedPoint
from truenorm.partials.gradients import PartialGradients
from truenorm.partials.wire import Signature
from truenorm.threads import thread_count

if TYPE_CHECKING:
    from truenorm.kernels.protocol import Core

__all__ = ["layer_norm_backward_partial", "rms_norm_backward_partial"]

Array = NDArray[Any]


def layer_norm_backward_partial(
    dy: Any,
    saved: Saved,
    *,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
) -> tuple[Array, PartialGradients]:
    """Compute the backward pass of layer norm over some rows of a batch.

    dx is complete. dgamma and dbeta are sums over the whole batch, so the call returns a partial
    of them. Partials of micro-batches or ranks, added and then rounded, have the bits of one call
    with all rows, for any split.

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
    return _backward(LAYER_NORM, dy, saved, out, backend, threads)


def rms_norm_backward_partial(
    dy: Any,
    saved: Saved,
    *,
    out: Any = None,
    backend: str | None = None,
    threads: int | None = None,
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
    chosen, settings = settings_of_backward(saved.settings, backend, threads)
    if chosen.core is not None and settings.backend == chosen.name:
        results = _by_core(chosen.core, kind, settings, dy, saved, out)
        if results is not None:
            return results
    check_arithmetic()
    dx, sums = by_driver(backward_partial, chosen, settings, dy, saved, out)
    special = np.stack([sums.dgamma_flags, sums.dbeta_flags])
    rows = len(saved.statistics)
    return dx, PartialGradients._of(kind, rows, sums.dgamma, sums.dbeta, special)


def _by_core(
    core: "Core", kind: Signature, settings: Settings, dy: Any, saved: Saved, out: Any
) -> tuple[Array, PartialGradients] | None:
    """Return dx and the partial of fast-path arrays; None if the driver has to compute them."""
    x, gamma = saved.x, saved.gamma
    types = types_of_mode(x.dtype, None if gamma is None else gamma.dtype, None)
    if (
        types is None
        or type(dy) is not np.ndarray
        or dy.dtype is not x.dtype
        or (out is not None and (type(out) is not np.ndarray or out.dtype is not x.dtype))
        or saved.axes != (x.ndim - 1,)
    ):
        return None
    size = x.shape[-1]
    dx = np.empty(x.shape, x.dtype) if out is None else out
    mode, bfloat16 = types
    arrays = (dy, x, gamma, dx)
    dy_rows, x_rows, scale, dx_rows = arrays if bfloat16 is None else as_stored(bfloat16, *arrays)
    threads = 1 if x.size < SINGLE_THREAD_BELOW else thread_count(settings.threads)
    sums = core.backward_partial(
        dy_rows,
        x_rows,
        scale,
        saved.statistics,
        dx_rows,
        kind.beta is not None,
        settings.eps,
        mode | (CENTRED if settings.norm.centred else 0),
        threads,
    )
    if sums is None:
        return None
    dgamma, dbeta = FixedPoint.of_core(sums[0], size + 1), FixedPoint.of_core(sums[1], size)
    special = np.zeros((2, size), np.uint8)
    return dx, PartialGradients._of_finite(kind, len(saved.statistics), dgamma, dbeta, special)
