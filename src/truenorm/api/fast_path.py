"""Entry of all passes: the C core computes whole calls on fast-path arrays.

Fast-path arrays have matching shapes and rows along their last axes; small ones may have any
layout. `entry.c` checks this. It returns NotImplemented for all other calls. The general path
(`api.run`) repeats these: it returns the same bits, or raises the error. It is imported on demand,
since most programs never need it.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.api import settings
from truenorm.api.backends import backend_named
from truenorm.api.saved import Gradients, Saved, check_saved
from truenorm.kernels.call import LAYER_NORM, TYPE_CODES, Norm
from truenorm.threads import thread_count

ENTRIES = ("forward", "backward", "backward_partial")


def _on_first_call(name: str) -> Callable[..., Any]:
    """Return a function that connects, since importing the C core takes milliseconds."""

    def function(*arguments: Any) -> Any:
        connect()
        return globals()[name](*arguments)

    return function


# Arguments: see `kernels/native/_core.pyi`.
forward, backward, backward_partial = map(_on_first_call, ENTRIES)


def connect() -> None:
    """Replace the entries of this module by those of the C core, or by `decline`."""
    core: Any = None
    with suppress(ValueError):  # it cannot be used: a call that names it raises this error
        backend_named("native")
        from truenorm.kernels.native import _core as core
    is_connected = core is not None and core.connect(
        # NumPy's own headers import it from there.
        import_module("numpy._core._multiarray_umath")._ARRAY_API,
        np.ndarray,
        np.dtype(np.float32),
        np.dtype(np.float16),
        None,  # bfloat16: learned from the first array
        np.dtype(np.float64),
        Saved,
        Gradients,
        LAYER_NORM,
        os.__dict__,
        settings.KEYS,
        settings.settings_of,
        settings.settings_of_backward,
        thread_count,
        type_code,
    )
    for name in ENTRIES:
        globals()[name] = getattr(core, name) if is_connected else decline


def decline(*_: Any) -> Any:
    """Leave a call to the general path: there is no C core, or it is for another NumPy."""
    return NotImplemented


def type_code(dtype: np.dtype[Any]) -> int | None:
    """Return the code of a type in the C core, or None."""
    return TYPE_CODES.get(dtype.name) if dtype.isnative else None


def general_forward(
    norm: Norm,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: Any,
    eps: Any,
    rounding: Any,
    out: Any,
    backend: str | None,
    threads: int | None,
    stream: Any,
    needs_saved: bool,
) -> tuple[NDArray[Any], Saved]:
    """Compute a forward pass that the C core declined; the arguments are those of `forward`."""
    from truenorm.api import run

    chosen, found = settings.settings_of(norm, eps, rounding, backend, threads)
    return run.forward(chosen, found, x, gamma, beta, axis, out, stream, needs_saved=needs_saved)


def general_backward(
    norm: Norm,
    dy: Any,
    saved: Saved,
    out: Any,
    backend: str | None,
    threads: int | None,
    stream: Any,
) -> Gradients:
    """Compute a backward pass that the C core declined; the arguments are those of `backward`."""
    check_saved(norm, saved, "_backward")
    from truenorm.api import run

    chosen, found = settings.settings_of_backward(saved.settings, backend, threads)
    return run.backward(chosen, found, dy, saved, out, stream)
