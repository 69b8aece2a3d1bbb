"""Forward by the general path: arrays of any kind and layout, and all types."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from truenorm.api import arguments
from truenorm.api.arguments import as_array, as_parameter, beside_device_array, output_for
from truenorm.api.backends import backend_named
from truenorm.api.saved import Gradients, Saved
from truenorm.api.settings import check_arithmetic
from truenorm.devices.arrays import library_of
from truenorm.kernels import driver as drive
from truenorm.kernels.call import Parameter, Settings
from truenorm.kernels.rows import Rows, format_of

if TYPE_CHECKING:
    from truenorm.kernels.gpu.runtime import Library
    from truenorm.kernels.protocol import Backend


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
        return _forward_on_device(library, settings, x, gamma, beta, axis, out)
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


def _forward_on_device(
    library: "Library",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Any,
) -> tuple[Any, Saved]:
    """Normalize rows on their device; the host computes what the device leaves undecided."""
    from truenorm.devices.call import DeviceCall
    from truenorm.kernels.gpu.runtime import dtype_of

    axes = arguments.axes_of(x, axis)
    if axes != (x.ndim - 1,):
        raise ValueError(f"axis must be the last axis of an array on a device, got {axis}")
    if gamma is not None:
        gamma = beside_device_array("gamma", gamma)
    if beta is not None:
        beta = beside_device_array("beta", beta)
    host = backend_named("reference")
    call = DeviceCall(library, host, settings, x, gamma, beta, out)
    y, statistics = call.forward()
    beta_dtype = None if call.beta_target is None else dtype_of(call.beta_target)
    settings = settings._replace(backend="gpu")
    return y, Saved(x, gamma, beta_dtype, axes, settings, cast("Any", statistics))


if TYPE_CHECKING:
    from truenorm.kernels.protocol import Backend, ColumnGradients


Found = TypeVar("Found")


def backward(
    backend: "Backend", settings: Settings, dy: Any, saved: Saved, out: Array | None, stream: Any
) -> Gradients:
    """Carry a gradient back through the call that saved something."""
    if (library := library_of(saved.x, stream)) is not None:
        return _backward_on_device(library, settings, dy, saved, out)
    dx, columns = by_driver(drive.backward, backend, settings, dy, saved, out)
    return _gradients(saved, dx, columns)


def by_driver(
    backward: Callable[..., Found],
    backend: "Backend",
    settings: Settings,
    dy: Any,
    saved: Saved,
    out: Array | None,
) -> tuple[Array, Found]:
    """Take arrays of any kind and layout; return dx, and what the driver's function does."""
    check_arithmetic()
    x = saved.x
    slopes, target = arguments.dy_of(dy, x)
    dx = output_for(x, out, {"x": x, "gamma": saved.gamma, "dy": slopes})
    dy_rows, x_rows, dx_rows = (Rows(array, saved.axes, target) for array in (slopes, x, dx))
    with np.errstate(all="ignore"):
        found = backward(
            backend, settings, dy_rows, x_rows, saved.statistics, *_parameters_of(saved), dx_rows
        )
    return dx, found


def _parameters_of(saved: Saved) -> tuple[Parameter, Parameter]:
    """Return gamma as the driver takes it, and what it needs of beta: the type."""
    lengths = tuple(saved.x.shape[k] for k in saved.axes)
    gamma, _ = arguments.parameter_of("gamma", saved.gamma, lengths, saved.axes, 1.0)
    target = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    return gamma, Parameter(np.zeros(len(gamma.values)), target)


def _gradients(saved: Saved, dx: Array, columns: "ColumnGradients") -> Gradients:
    """Return what the driver found, in the types and shapes of the parameters."""
    lengths = tuple(saved.x.shape[k] for k in saved.axes)
    gamma, beta = saved.gamma, saved.beta_dtype
    return Gradients(
        dx,
        None if gamma is None else as_parameter(columns.dgamma, gamma.dtype, lengths),
        None if beta is None else as_parameter(columns.dbeta, beta, lengths),
    )


def _backward_on_device(
    library: "Library", settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> Gradients:
    """Compute the gradients on the device of x."""
    from truenorm.devices.call import DeviceCall

    host = backend_named("reference")
    call = DeviceCall(library, host, settings, saved.x, saved.gamma, None, out)
    beta_target = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    dy = beside_device_array("dy", dy)
    return Gradients(*call.backward(dy, cast("Any", saved.statistics), beta_target))
