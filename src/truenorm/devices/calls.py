"""A norm of an array on a device: arguments are checked, and results are of the same library."""

import math
from typing import Any

from truenorm.devices.arrays import Library, OnDevice
from truenorm.devices.passes import DeviceCall
from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.backend import Backend
from truenorm.kernels.call import Settings
from truenorm.kernels.gpu.plan import LONGEST

__all__ = ["backward", "forward"]


def forward(
    library: Library,
    host: Backend,
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    out: Any,
) -> tuple[Any, Any, FloatFormat | None]:
    """Return y, the saved statistics of each row, and the type of beta.

    Rows run along the last axis of x and have elements; gamma and beta are on the device or NumPy
    arrays of native byte order.
    """
    _check_out(out)
    rows = library.on_device("x", x)
    if rows.shape[-1] > LONGEST:
        raise ValueError(
            f"the last axis of x must have at most {LONGEST} elements on a device, got "
            f"{rows.shape[-1]}: move x to the CPU"
        )
    of_gamma = _parameter(library, "gamma", gamma, rows)
    of_beta = _parameter(library, "beta", beta, rows)
    y = library.empty(rows.shape, rows.target)
    kept = library.empty((math.prod(rows.shape[:-1]), settings.norm.numbers_kept), FLOAT64)
    call = DeviceCall(library.runtime, host, settings, rows, of_gamma, of_beta)
    call.forward(y, kept)
    return library.handed_over(y), library.kept(kept), of_beta and of_beta.target


def _parameter(library: Library, name: str, given: Any, x: OnDevice) -> OnDevice | None:
    """Return gamma or beta on the device."""
    if given is None:
        return None
    found = library.on_device(name, given)
    if found.shape != x.shape[-1:]:
        raise ValueError(f"{name} has shape {found.shape}, and a row of x {x.shape[-1:]}")
    return found


def backward(
    library: Library,
    host: Backend,
    settings: Settings,
    dy: Any,
    x: Any,
    gamma: Any,
    beta_target: FloatFormat | None,
    kept: Any,
    out: Any,
) -> tuple[Any, Any, Any]:
    """Return dx, dgamma and dbeta; None of what there is no parameter."""
    _check_out(out)
    slopes, rows = library.on_device("dy", dy), library.on_device("x", x)
    if slopes.shape != rows.shape or slopes.target is not rows.target:
        raise ValueError(
            f"dy has shape {slopes.shape} and type {slopes.target.name} but y has shape "
            f"{rows.shape} and type {rows.target.name}"
        )
    of_gamma = _parameter(library, "gamma", gamma, rows)
    dx = library.empty(rows.shape, rows.target)
    dgamma, dbeta = (
        None if target is None else library.empty(rows.shape[-1:], target)
        for target in (of_gamma and of_gamma.target, beta_target)
    )
    call = DeviceCall(library.runtime, host, settings, rows, of_gamma, None)
    call.backward(slopes, library.again(kept), dx, dgamma, dbeta)
    return (
        library.handed_over(dx),
        dgamma and library.handed_over(dgamma),
        dbeta and library.handed_over(dbeta),
    )


def _check_out(out: Any) -> None:
    if out is not None:
        raise ValueError("out is for arrays of NumPy: on a device, leave it out")
