"""Entry of both passes: fast-path arrays go straight to the C core.

Fast-path arrays are C-contiguous, aligned and in native byte order, with matching shapes, and
outputs overlap no inputs. The core checks this. The general path (`api.run`) takes all other
arrays, and returns the same bits; it is imported on demand, since most programs never need it.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truenorm.api.saved import Gradients, Saved, check_saved
from truenorm.api.settings import settings_of_backward
from truenorm.kernels.call import TYPE_CODES, Norm, Settings
from truenorm.threads import thread_count

if TYPE_CHECKING:
    from truenorm.kernels.protocol import Backend, Core


Array = NDArray[Any]

FLOAT32 = np.dtype(np.float32)
BITS = np.dtype(np.uint16)
CENTRED, FAST = 1, 2
ONLY_FLOAT32 = (0, None)
"""`types_of_mode` of the most frequent types."""

SINGLE_THREAD_BELOW = 2**14
"""Calls with fewer elements run on the thread of the caller."""

_ndarray, _empty = np.ndarray, np.empty


def forward(
    backend: "Backend",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: Any,
    out: Any,
    stream: Any,
    *,
    needs_saved: bool,
) -> tuple[Array, Any]:
    """Normalize rows; return y and, if `needs_saved`, the saved statistics."""
    core = backend.core
    if (
        core is not None
        and type(x) is _ndarray
        and (gamma is None or type(gamma) is _ndarray)
        and (beta is None or type(beta) is _ndarray)
        and (out is None or (type(out) is _ndarray and out.dtype is x.dtype))
        and stream is None
        and type(axis) is int
        and (size := x.size) > 0
    ):
        dtype, shape = x.dtype, x.shape
        gamma_dtype = None if gamma is None else gamma.dtype
        beta_dtype = None if beta is None else beta.dtype
        is_float32 = (
            dtype is FLOAT32
            and (gamma_dtype is FLOAT32 or gamma_dtype is None)
            and (beta_dtype is FLOAT32 or beta_dtype is None)
        )
        types = ONLY_FLOAT32 if is_float32 else types_of_mode(dtype, gamma_dtype, beta_dtype)
        last = len(shape) - 1
        if types is not None and (axis == -1 or axis == last >= 0):
            (centred,), eps, rounding, _, limit = settings
            y = _empty(shape, dtype) if out is None else out
            rows = size // shape[last] if last >= 0 else 0
            statistics = _empty((rows, 3 if centred else 1))
            mode, bfloat16 = types
            mode |= (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
            threads = 1 if size < SINGLE_THREAD_BELOW else thread_count(limit)
            arrays = (x, gamma, beta, y)
            stored_x, stored_gamma, stored_beta, stored_y = (
                arrays if bfloat16 is None else as_stored(bfloat16, *arrays)
            )
            if core.forward(
                stored_x, stored_gamma, stored_beta, stored_y, statistics, eps, mode, threads
            ):
                if not needs_saved:
                    return y, None
                return y, Saved(x, gamma, beta_dtype, (last,), settings, statistics)
    from truenorm.api.run import forward as general

    return general(backend, settings, x, gamma, beta, axis, out, stream, needs_saved=needs_saved)


def backward(
    norm: Norm,
    dy: Any,
    saved: Saved,
    out: Any,
    backend: str | None,
    threads: int | None,
    stream: Any,
) -> Gradients:
    """Compute the gradients of the call that returned `saved`."""
    check_saved(norm, saved, "_backward")
    chosen, settings = settings_of_backward(saved.settings, backend, threads)
    if stream is None and chosen.core is not None and settings.backend == chosen.name:
        gradients = _backward(chosen.core, settings, dy, saved, out)
        if gradients is not None:
            return gradients
    from truenorm.api.run import backward as general

    return general(chosen, settings, dy, saved, out, stream)


def _backward(
    core: "Core", settings: Settings, dy: Any, saved: Saved, out: Any
) -> Gradients | None:
    """Return the gradients, or None if the general path must compute them."""
    x, gamma, beta_dtype = saved.x, saved.gamma, saved.beta_dtype
    if (
        type(dy) is not _ndarray
        or type(x) is not _ndarray
        or dy.dtype is not x.dtype
        or (gamma is not None and type(gamma) is not _ndarray)
        or (out is not None and (type(out) is not _ndarray or out.dtype is not x.dtype))
        or saved.axes != (x.ndim - 1,)
    ):
        return None
    dtype, shape, size = x.dtype, x.shape, x.size
    gamma_dtype = None if gamma is None else gamma.dtype
    is_float32 = (
        dtype is FLOAT32
        and (gamma_dtype is FLOAT32 or gamma_dtype is None)
        and (beta_dtype is FLOAT32 or beta_dtype is None)
    )
    types = ONLY_FLOAT32 if is_float32 else types_of_mode(dtype, gamma_dtype, beta_dtype)
    if types is None:
        return None
    (centred,), eps, rounding, _, limit = settings
    dx = _empty(shape, dtype) if out is None else out
    dgamma = None if gamma is None else _empty(shape[-1], gamma_dtype)
    dbeta = None if beta_dtype is None else _empty(shape[-1], beta_dtype)
    mode, bfloat16 = types
    mode |= (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
    threads = 1 if size < SINGLE_THREAD_BELOW else thread_count(limit)
    gradients = Gradients(dx, dgamma, dbeta)
    if bfloat16 is not None:
        dy, x, gamma, dx, dgamma, dbeta = as_stored(bfloat16, dy, x, gamma, dx, dgamma, dbeta)
    if core.backward(dy, x, gamma, saved.statistics, dx, dgamma, dbeta, eps, mode, threads):
        return gradients
    return None


@lru_cache(maxsize=64)
def types_of_mode(
    rows: np.dtype[Any], gamma: np.dtype[Any] | None, beta: np.dtype[Any] | None
) -> tuple[int, np.dtype[Any] | None] | None:
    """Return the bits of `mode` for the types, and the dtype bfloat16 if one of them is that.

    Return None if the core does not support these types.
    """
    dtypes = [rows, rows if gamma is None else gamma, rows if beta is None else beta]
    codes = [TYPE_CODES.get(dtype.name) for dtype in dtypes if dtype.isnative]
    if len(codes) < 3 or None in codes or (3 in codes and codes != [3, 3, 3]):
        return None
    mode = sum(code << 4 * (k + 1) for k, code in enumerate(codes) if code is not None)
    return mode, next((dtype for dtype in dtypes if dtype.name == "bfloat16"), None)


def as_stored(bfloat16: np.dtype[Any], *arrays: Any) -> tuple[Any, ...]:
    """Return arrays of bfloat16 as uint16: they have no buffer format of their own."""
    return tuple(
        array.view(BITS) if array is not None and array.dtype is bfloat16 else array
        for array in arrays
    )
