"""The front of both passes: ordinary float32 and float64 arrays go straight to the C core.

Arrays are ordinary if they are C-contiguous, native and aligned, of matching shapes, and if
results overlap none of the others. The core checks all of it in one place. What it declines is
checked and computed by the general path, with the same bits. That is imported when it is needed:
most programs never do.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.call import Settings
from truenorm.kernels.norm import Norm
from truenorm.ops.saved import Gradients, Saved, check_saved
from truenorm.ops.settings import settings_of_backward
from truenorm.threads import thread_count

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend, Core

__all__ = ["backward", "forward"]

Array = NDArray[Any]

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
CENTRED, FAST = 1, 2
ALONE_BELOW = 2**14
"""Elements below which a call stays on its own thread."""

_ndarray, _empty = np.ndarray, np.empty


def forward(
    backend: "Backend",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: Any,
    out: Array | None,
    stream: Any,
    *,
    keep: bool,
) -> tuple[Array, Any]:
    """Normalize rows; return y and, for backward if `keep` is set, a `Saved`."""
    core = backend.core
    if (
        core is not None
        and type(x) is _ndarray
        and ((dtype := x.dtype) is FLOAT32 or dtype is FLOAT64)
        and (gamma is None or (type(gamma) is _ndarray and gamma.dtype is dtype))
        and (beta is None or (type(beta) is _ndarray and beta.dtype is dtype))
        and (out is None or (type(out) is _ndarray and out.dtype is dtype))
        and stream is None
        and type(axis) is int
        and x.size > 0
    ):
        shape = x.shape
        last = len(shape) - 1
        if axis == -1 or axis == last >= 0:
            (centred,), eps, rounding, _, asked = settings
            y = _empty(shape, dtype) if out is None else out
            rows = x.size // shape[last] if last >= 0 else 0
            statistics = _empty((rows, 3 if centred else 1))
            mode = (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
            threads = 1 if x.size < ALONE_BELOW else thread_count(asked)
            if core.forward(x, gamma, beta, y, statistics, eps, mode, threads):
                if not keep:
                    return y, None
                beta_dtype = None if beta is None else dtype
                return y, Saved(x, gamma, beta_dtype, (last,), settings, statistics)
    from truenorm.ops.forward import forward as general

    return general(backend, settings, x, gamma, beta, axis, out, stream, keep=keep)


def backward(
    norm: Norm,
    dy: Any,
    saved: Saved,
    out: Array | None,
    backend: str | None,
    threads: int | None,
    stream: Any,
) -> Gradients:
    """Carry a gradient back through the call that saved something."""
    check_saved(norm, saved, "_backward")
    chosen, settings = settings_of_backward(saved.settings, backend, threads)
    if stream is None and chosen.core is not None and settings.backend == chosen.name:
        found = _backward(chosen.core, settings, dy, saved, out)
        if found is not None:
            return found
    from truenorm.ops.backward import backward as general

    return general(chosen, settings, dy, saved, out, stream)


def _backward(
    core: "Core", settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> Gradients | None:
    """Return the gradients, or None if the general path has to compute them."""
    x, gamma, of_beta = saved.x, saved.gamma, saved.beta_dtype
    if (
        type(dy) is not _ndarray
        or type(x) is not _ndarray
        or ((dtype := x.dtype) is not FLOAT32 and dtype is not FLOAT64)
        or (gamma is not None and (type(gamma) is not _ndarray or gamma.dtype is not dtype))
        or (of_beta is not None and of_beta is not dtype)
        or (out is not None and (type(out) is not _ndarray or out.dtype is not dtype))
        or saved.axes != (x.ndim - 1,)
    ):
        return None
    shape, size = x.shape, x.size
    (centred,), eps, rounding, _, asked = settings
    dx = _empty(shape, dtype) if out is None else out
    dgamma = None if gamma is None else _empty(shape[-1], dtype)
    dbeta = None if of_beta is None else _empty(shape[-1], dtype)
    mode = (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
    threads = 1 if size < ALONE_BELOW else thread_count(asked)
    if not core.backward(dy, x, gamma, saved.kept, dx, dgamma, dbeta, eps, mode, threads):
        return None
    return Gradients(dx, dgamma, dbeta)
