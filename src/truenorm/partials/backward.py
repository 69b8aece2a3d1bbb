"""Backward over some rows of a batch, for layer norm and RMSNorm."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truenorm.api.fast_path import ALONE_BELOW, CENTRED, as_held, types_of_mode
from truenorm.api.run import by_driver
from truenorm.api.saved import Saved, check_saved
from truenorm.api.settings import settings_of_backward
from truenorm.kernels import driver as drive
from truenorm.kernels.call import LAYER_NORM, RMS_NORM, Norm, Settings
from truenorm.kernels.fixed_point import FixedPoint
from truenorm.partials.gradients import PartialGradients
from truenorm.partials.wire import Kind
from truenorm.threads import thread_count

if TYPE_CHECKING:
    from truenorm.kernels.protocol import Core

__all__ = ["layer_norm_backward_partial", "rms_norm_backward_partial"]

Array = NDArray[Any]


def layer_norm_backward_partial(
    dy: Any,
    saved: Saved,
    *,
    out: Array | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> tuple[Array, PartialGradients]:
    """Do the same as `layer_norm_backward` for some rows of a batch.

    dx is done with the call. Of dgamma and dbeta, which are sums over the whole batch, a partial
    is returned: added up over micro-batches or ranks, and rounded then, it has the bits that one
    call with all rows would have given, whatever the split.

    Parameters
    ----------
    dy, saved, out, backend, threads
        As in `layer_norm_backward`. x, gamma and beta are of at most float32, and forward's
        rounding was "correct".

    Returns
    -------
    dx : ndarray
        Of the shape and type of x.
    partial : PartialGradients
        What these rows add to dgamma and dbeta.

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
    out: Array | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> tuple[Array, PartialGradients]:
    """Do the same as `rms_norm_backward` for some rows of a batch.

    Parameters
    ----------
    dy, saved, out, backend, threads
        As in `layer_norm_backward_partial`.

    Returns
    -------
    dx : ndarray
        Of the shape and type of x.
    partial : PartialGradients
        What these rows add to dgamma.

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
    out: Array | None,
    backend: str | None,
    threads: int | None,
) -> tuple[Array, PartialGradients]:
    check_saved(norm, saved, "_backward_partial")
    if not isinstance(saved.x, np.ndarray):
        raise TypeError("x is on a device: partials are for arrays of NumPy, copy it to one")
    kind = Kind.of(saved)
    chosen, settings = settings_of_backward(saved.settings, backend, threads)
    if chosen.core is not None and settings.backend == chosen.name:
        found = _by_core(chosen.core, kind, settings, dy, saved, out)
        if found is not None:
            return found
    dx, share = by_driver(drive.backward_partial, chosen, settings, dy, saved, out)
    return dx, PartialGradients._of_share(kind, len(saved.statistics), share)


def _by_core(
    core: "Core", kind: Kind, settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> tuple[Array, PartialGradients] | None:
    """Return dx and the partial of ordinary arrays; None if the driver has to compute them."""
    x, gamma = saved.x, saved.gamma
    of_gamma = None if gamma is None else gamma.dtype
    types = types_of_mode(x.dtype, of_gamma, None)
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
    mode, *held = types
    arrays = (dy, x, gamma, dx)
    rows_of_dy, rows_of_x, scale, to = as_held(held, *arrays) if held else arrays
    threads = 1 if x.size < ALONE_BELOW else thread_count(settings.threads)
    found = core.backward_partial(
        rows_of_dy,
        rows_of_x,
        scale,
        saved.statistics,
        to,
        kind.beta is not None,
        settings.eps,
        mode | (CENTRED if settings.norm.centred else 0),
        threads,
    )
    if found is None:
        return None
    dgamma, dbeta = FixedPoint.of_core(found[0], size + 1), FixedPoint.of_core(found[1], size)
    flags = np.zeros((2, size), np.uint8)
    return dx, PartialGradients._of_finite(kind, len(saved.statistics), dgamma, dbeta, flags)
