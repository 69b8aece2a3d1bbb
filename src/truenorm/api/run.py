"""The general path of both passes: arrays of any library, layout and type."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from truenorm.api.arguments import (
    array_beside_device,
    as_array,
    as_gradient,
    axes_of,
    dy_of,
    output_for,
    parameter_of,
)
from truenorm.api.backends import backend_named
from truenorm.api.saved import Gradients, Saved
from truenorm.api.settings import check_arithmetic
from truenorm.devices.arrays import library_of
from truenorm.kernels import driver
from truenorm.kernels.call import Call, Parameter, Settings
from truenorm.kernels.rows import Rows, format_of

if TYPE_CHECKING:
    from truenorm.kernels.gpu.runtime import Library
    from truenorm.kernels.protocol import Backend

Array = NDArray[Any]
Columns = TypeVar("Columns")


def forward(
    backend: "Backend",
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Any,
    stream: Any,
    *,
    needs_saved: bool,
) -> tuple[Array, Saved]:
    """Normalize rows; return y and the saved statistics."""
    check_arithmetic()
    if (library := library_of(x, stream)) is not None:
        return _forward_on_device(library, settings, x, gamma, beta, axis, out)
    with np.errstate(all="ignore"):
        x, x_format = as_array("x", x)
        axes = axes_of(x, axis)
        gamma_row, gamma = parameter_of("gamma", gamma, x, axes, 1.0)
        beta_row, beta = parameter_of("beta", beta, x, axes, 0.0)
        # Both parameters are read before y is written; backward reads gamma again.
        y = output_for(x, out, {"x": x, "gamma": gamma} if needs_saved else {})
        if out is not None and y is not x and np.may_share_memory(y, x):
            x = x.copy()  # as ufuncs do; if y is x, each block is read before it is written
        x_rows, y_rows = Rows(x, axes, x_format), Rows(y, axes, x_format)
        call = Call.of(settings, x_rows, gamma_row, beta_row)
        statistics = driver.forward(backend, call, x_rows, y_rows)
    beta_dtype = None if beta is None else beta.dtype
    saved = Saved(x, gamma, beta_dtype, axes, settings, statistics)
    return (y if out is None else out), saved


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

    axes = axes_of(x, axis)
    if axes != (x.ndim - 1,):
        raise ValueError(f"axis must be the last axis of an array on a device, got {axis}")
    if gamma is not None:
        gamma = array_beside_device("gamma", gamma)
    if beta is not None:
        beta = array_beside_device("beta", beta)
    host = backend_named("reference")
    call = DeviceCall(library, host, settings, x, gamma, beta, out)
    y, statistics = call.forward()
    beta_dtype = None if call.beta_target is None else dtype_of(call.beta_target)
    settings = settings._replace(backend="gpu")
    return y, Saved(x, gamma, beta_dtype, axes, settings, cast("Any", statistics))


def backward(
    backend: "Backend", settings: Settings, dy: Any, saved: Saved, out: Any, stream: Any
) -> Gradients:
    """Compute the gradients of the call that returned `saved`."""
    check_arithmetic()
    if (library := library_of(saved.x, stream)) is not None:
        return _backward_on_device(library, settings, dy, saved, out)
    dx, columns = by_driver(driver.backward, backend, settings, dy, saved, out)
    lengths = tuple(saved.x.shape[k] for k in saved.axes)
    gamma_dtype = None if saved.gamma is None else saved.gamma.dtype
    return Gradients(
        dx,
        as_gradient(columns.dgamma, gamma_dtype, lengths),
        as_gradient(columns.dbeta, saved.beta_dtype, lengths),
    )


def by_driver(
    function: Callable[["Backend", Call, driver.BackwardRows], Columns],
    backend: "Backend",
    settings: Settings,
    dy: Any,
    saved: Saved,
    out: Any,
) -> tuple[Array, Columns]:
    """Call a backward function of the driver; return dx and the result of the function."""
    x, axes = saved.x, saved.axes
    dy, x_format = dy_of(dy, x)
    dx = output_for(x, out, {"x": x, "gamma": saved.gamma, "dy": dy})
    beta_format = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    dy_rows, x_rows, dx_rows = (Rows(array, axes, x_format) for array in (dy, x, dx))
    rows = driver.BackwardRows(dy_rows, x_rows, saved.statistics, dx_rows, settings.backend)
    with np.errstate(all="ignore"):
        gamma, _ = parameter_of("gamma", saved.gamma, x, axes, 1.0)
        beta = Parameter(np.zeros(len(gamma.values)), beta_format)
        columns = function(backend, Call.of(settings, x_rows, gamma, beta), rows)
    return (dx if out is None else out), columns


def _backward_on_device(
    library: "Library", settings: Settings, dy: Any, saved: Saved, out: Any
) -> Gradients:
    """Compute the gradients on the device of x."""
    from truenorm.devices.call import DeviceCall

    host = backend_named("reference")
    call = DeviceCall(library, host, settings, saved.x, saved.gamma, None, out)
    beta_format = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    dy = array_beside_device("dy", dy)
    return Gradients(*call.backward(dy, cast("Any", saved.statistics), beta_format))
