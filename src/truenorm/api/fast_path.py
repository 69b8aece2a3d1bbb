"""The front of both passes: ordinary arrays go straight to the C core.

Arrays are ordinary if they are C-contiguous, native and aligned, of matching shapes, and if
results overlap none of the others. The core checks all of it in one place. What it declines is
checked and computed by the general path, with the same bits. That is imported when it is needed:
most programs never do.
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
IS_FLOAT32 = (None, FLOAT32)
ONLY_FLOAT32: tuple[Any, ...] = (0,)

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
    needs_saved: bool,
) -> tuple[Array, Any]:
    """Normalize rows; return y and, for backward if `needs_saved`, a `Saved`."""
    core = backend.core
    if (
        core is not None
        and type(x) is _ndarray
        and (gamma is None or type(gamma) is _ndarray)
        and (beta is None or type(beta) is _ndarray)
        and (out is None or (type(out) is _ndarray and out.dtype is x.dtype))
        and stream is None
        and type(axis) is int
        and x.size > 0
    ):
        dtype, shape = x.dtype, x.shape
        of_gamma = None if gamma is None else gamma.dtype
        of_beta = None if beta is None else beta.dtype
        is_float32 = dtype is FLOAT32 and of_gamma in IS_FLOAT32 and of_beta in IS_FLOAT32
        types = ONLY_FLOAT32 if is_float32 else types_of_mode(dtype, of_gamma, of_beta)
        last = len(shape) - 1
        if types is not None and (axis == -1 or axis == last >= 0):
            (centred,), eps, rounding, _, asked = settings
            y = _empty(shape, dtype) if out is None else out
            rows = x.size // shape[last] if last >= 0 else 0
            statistics = _empty((rows, 3 if centred else 1))
            mode, *held = types
            mode |= (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
            threads = 1 if x.size < ALONE_BELOW else thread_count(asked)
            arrays = (x, gamma, beta, y)
            rows_of_x, scale, shift, to = as_held(held, *arrays) if held else arrays
            if core.forward(rows_of_x, scale, shift, to, statistics, eps, mode, threads):
                if not needs_saved:
                    return y, None
                return y, Saved(x, gamma, of_beta, (last,), settings, statistics)
    from truenorm.api.run import forward as general

    return general(backend, settings, x, gamma, beta, axis, out, stream, needs_saved=needs_saved)


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
    from truenorm.api.run import backward as general

    return general(chosen, settings, dy, saved, out, stream)


def _backward(
    core: "Core", settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> Gradients | None:
    """Return the gradients, or None if the general path has to compute them."""
    x, gamma, of_beta = saved.x, saved.gamma, saved.beta_dtype
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
    of_gamma = None if gamma is None else gamma.dtype
    is_float32 = dtype is FLOAT32 and of_gamma in IS_FLOAT32 and of_beta in IS_FLOAT32
    types = ONLY_FLOAT32 if is_float32 else types_of_mode(dtype, of_gamma, of_beta)
    if types is None:
        return None
    (centred,), eps, rounding, _, asked = settings
    dx = _empty(shape, dtype) if out is None else out
    dgamma = None if gamma is None else _empty(shape[-1], of_gamma)
    dbeta = None if of_beta is None else _empty(shape[-1], of_beta)
    mode, *held = types
    mode |= (CENTRED if centred else 0) | (0 if rounding == "correct" else FAST)
    threads = 1 if size < ALONE_BELOW else thread_count(asked)
    rows_of_dy, rows_of_x, scale, to, of_scale, of_shift = dy, x, gamma, dx, dgamma, dbeta
    if held:
        rows_of_dy, rows_of_x, scale, to, of_scale, of_shift = as_held(
            held, dy, x, gamma, dx, dgamma, dbeta
        )
    if not core.backward(
        rows_of_dy, rows_of_x, scale, saved.statistics, to, of_scale, of_shift, eps, mode, threads
    ):
        return None
    return Gradients(dx, dgamma, dbeta)


@lru_cache(maxsize=64)
def types_of_mode(
    rows: np.dtype[Any], gamma: np.dtype[Any] | None, beta: np.dtype[Any] | None
) -> tuple[Any, ...] | None:
    """Return the bits of `mode` that name the types, and bfloat16's dtype if it takes part.

    None if the core does not have these types.
    """
    given = [rows, rows if gamma is None else gamma, rows if beta is None else beta]
    codes = [TYPE_CODES.get(dtype.name) for dtype in given if dtype.isnative]
    if len(codes) < 3 or None in codes or (3 in codes and codes != [3, 3, 3]):
        return None
    mode = sum(code << 4 * (k + 1) for k, code in enumerate(codes) if code is not None)
    return (mode, *(dtype for dtype in given if dtype.name == "bfloat16"))


def as_held(bfloat16: list[Any], *arrays: Any) -> tuple[Any, ...]:
    """Return arrays of bfloat16 as their bits: they have no buffer with a format."""
    return tuple(
        array.view(BITS) if array is not None and array.dtype is bfloat16[0] else array
        for array in arrays
    )
