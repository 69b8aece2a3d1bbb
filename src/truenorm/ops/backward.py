"""Backward by the general path: arrays of any kind and layout, and all types."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import Library, library_of
from truenorm.dispatch import backend_named
from truenorm.kernels.call import Parameter, Settings
from truenorm.kernels.drive import backward as drive
from truenorm.kernels.rows import Rows
from truenorm.kernels.storage import format_of
from truenorm.ops import arguments
from truenorm.ops.arrays import beside_device_array
from truenorm.ops.environment import check_arithmetic
from truenorm.ops.output import as_parameter, output_for
from truenorm.ops.saved import Gradients, Saved

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend, ColumnGradients

__all__ = ["backward", "by_driver"]

Array = NDArray[Any]
Found = TypeVar("Found")


def backward(
    backend: "Backend", settings: Settings, dy: Any, saved: Saved, out: Array | None, stream: Any
) -> Gradients:
    """Carry a gradient back through the call that saved something."""
    if (library := library_of(saved.x, stream)) is not None:
        return _on_device(library, settings, dy, saved, out)
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
            backend, settings, dy_rows, x_rows, saved.kept, *_parameters_of(saved), dx_rows
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


def _on_device(
    library: Library, settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> Gradients:
    """Carry a gradient back where it is."""
    from truenorm.devices import calls

    host = backend_named("reference")
    beta = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    dy = beside_device_array("dy", dy)
    given = dy, saved.x, saved.gamma, beta, saved.kept
    return Gradients(*calls.backward(library, host, settings, *given, out))
