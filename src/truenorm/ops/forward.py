"""Forward by the general path: arrays of any kind and layout, and all types."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import Library, dtype_of, library_of
from truenorm.dispatch import backend_named
from truenorm.kernels.call import Settings
from truenorm.kernels.drive import forward as drive
from truenorm.kernels.rows import Rows
from truenorm.ops import arguments
from truenorm.ops.arrays import as_array, beside_device_array
from truenorm.ops.environment import check_arithmetic
from truenorm.ops.output import output_for
from truenorm.ops.saved import Saved

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend

__all__ = ["forward"]

Array = NDArray[Any]


def forward(
    backend: "Backend",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Array | None,
    stream: Any,
    *,
    keep: bool,
) -> tuple[Array, Any]:
    """Normalize rows; return y and, for backward if `keep` is set, a `Saved`."""
    check_arithmetic()
    if (library := library_of(x, stream)) is not None:
        return _on_device(library, settings, x, gamma, beta, axis, out)
    with np.errstate(all="ignore"):
        return _by_driver(backend, settings, x, gamma, beta, axis, out, keep=keep)


def _by_driver(
    backend: "Backend",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Array | None,
    *,
    keep: bool,
) -> tuple[Array, Saved]:
    """Take arrays of any kind and layout."""
    x, target = as_array("x", x)
    axes = arguments.axes_of(x, axis)
    lengths = tuple(x.shape[k] for k in axes)
    gamma_rows, gamma_array = arguments.parameter_of("gamma", gamma, lengths, axis, 1.0)
    beta_rows, beta_array = arguments.parameter_of("beta", beta, lengths, axis, 0.0)
    # The parameters are read before anything is written, and of the two backward needs gamma.
    y = output_for(x, out, {"x": x, "gamma": gamma_array} if keep else {})
    if out is not None and out is not x and np.may_share_memory(out, x):
        x = x.copy()  # as ufuncs do; not x itself, which each block reads before it writes
    rows = [Rows(array, axes, target) for array in (x, y)]
    kept = drive.forward(backend, settings, rows[0], gamma_rows, beta_rows, rows[1])
    beta_dtype = None if beta_array is None else beta_array.dtype
    return y, Saved(x, gamma_array, beta_dtype, axes, settings, kept)


def _on_device(
    library: Library,
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Any,
) -> tuple[Any, Saved]:
    """Normalize rows where they are; NumPy does what the device refuses."""
    from truenorm.devices import calls

    axes = arguments.axes_of(x, axis)
    if axes != (x.ndim - 1,):
        raise ValueError(f"axis must be the last axis of an array on a device, got {axis}")
    if gamma is not None:
        gamma = beside_device_array("gamma", gamma)
    if beta is not None:
        beta = beside_device_array("beta", beta)
    host = backend_named("reference")
    y, kept, of_beta = calls.forward(library, host, settings, x, gamma, beta, out)
    beta_dtype = None if of_beta is None else dtype_of(of_beta)
    return y, Saved(x, gamma, beta_dtype, axes, settings._replace(backend="gpu"), kept)
