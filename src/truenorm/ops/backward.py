"""Backward by the general path: arrays of any kind and layout, and all types.

The two ways give the same bits. What the backend does not do at once is for the driver.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import Library, library_of
from truenorm.dispatch import backend_named
from truenorm.exact import FloatFormat
from truenorm.kernels.call import Parameter, Settings
from truenorm.kernels.drive import backward as drive
from truenorm.kernels.rows import Rows
from truenorm.kernels.storage import format_of
from truenorm.ops import arguments
from truenorm.ops.arrays import beside_device_array
from truenorm.ops.environment import check_arithmetic
from truenorm.ops.output import as_parameter, output_for
from truenorm.ops.plain import native_format, plain, plain_output, plain_parameters
from truenorm.ops.saved import Gradients, Saved

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend, ColumnGradients, ColumnSums

__all__ = ["backward", "by_driver"]

Array = NDArray[Any]
Found = TypeVar("Found")


def backward(
    backend: "Backend", settings: Settings, dy: Any, saved: Saved, out: Array | None, stream: Any
) -> Gradients:
    """Carry a gradient back through the call that saved something."""
    is_own = stream is None and settings.backend == backend.name
    if is_own and backend.at_once is not None:
        check_arithmetic()
        found = _at_once(backend, settings, dy, saved, out)
        if found is not None:
            return found
    if (library := library_of(saved.x, stream)) is not None:
        return _on_device(library, settings, dy, saved, out)
    dx, columns = by_driver(drive.backward, backend, settings, dy, saved, out)
    return _gradients(saved, dx, columns)


class _Plain(NamedTuple):
    """Arrays as kernels take them, and the type of rows."""

    dy: Array
    x: Array
    gamma: Array | None
    target: FloatFormat


def _plain(dy: Any, saved: Saved) -> _Plain | None:
    """Return the arrays of a call along the last axis, if all of them are plain."""
    slopes, x = plain(dy), plain(saved.x)
    if slopes is None or x is None or saved.axes != (x.ndim - 1,) or x.size == 0:
        return None
    target = native_format(x.dtype)
    if target is None or slopes.dtype != x.dtype or slopes.shape != x.shape:
        return None
    if saved.beta_dtype is not None and not saved.beta_dtype.isnative:
        return None
    parameters = plain_parameters(saved.gamma, None, x, target)
    return None if parameters is None else _Plain(slopes, x, parameters[0], target)


def _at_once(
    backend: "Backend", settings: Settings, dy: Any, saved: Saved, out: Array | None
) -> Gradients | None:
    """Do what can be done without the driver, and have it do the rest; None if that is all."""
    given = _plain(dy, saved)
    if given is None or backend.at_once is None:
        return None
    x, target = given.x, given.target
    dx = plain_output(out, x, given.gamma, given.dy)
    if dx is None:
        return None
    shape = (-1, x.shape[-1])
    flat_dy, flat_x, flat_dx = given.dy.reshape(shape), x.reshape(shape), dx.reshape(shape)
    gamma = given.gamma
    types = gamma, None if gamma is None else gamma.dtype, saved.beta_dtype
    gradients = backend.at_once.small_backward(
        settings, target, flat_dy, flat_x, saved.kept, types, flat_dx
    )
    if gradients is not None:
        return Gradients(dx, *gradients)
    with np.errstate(all="ignore"):
        found = backend.at_once.backward(
            settings, target, flat_dy, flat_x, saved.kept, gamma, flat_dx
        )
        if found is None:
            return None
        sums, states = found
        dgamma = _rounded(sums.dgamma, types[1])
        dbeta = _rounded(sums.dbeta, types[2])
        if states is None and dgamma is not REFUSED and dbeta is not REFUSED:
            return Gradients(dx, dgamma, dbeta)
        rows = [Rows(each, saved.axes, target) for each in (given.dy, x, dx)]
        columns = drive.settle_rows(
            backend, settings, rows[0], rows[1], *_parameters_of(saved), rows[2], sums, states
        )
    return _gradients(saved, dx, columns)


REFUSED: Any = object()
"""In place of sums of which some are not known well enough."""


def _rounded(sums: "ColumnSums", dtype: np.dtype[Any] | None) -> Any:
    """Return the gradient of a parameter, or None if there is no such parameter."""
    if dtype is None:
        return None
    target = format_of(dtype)
    assert target is not None
    values, refused = sums.rounded(target)
    return REFUSED if refused.any() else values.view(dtype.newbyteorder("="))


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
