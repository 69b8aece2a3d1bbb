"""Norms of arrays that are on a device: results stay there."""

from collections.abc import Sequence
from typing import Any

from truenorm.devices.arrays import Library, dtype_of
from truenorm.dispatch import backend_named
from truenorm.kernels.call import Settings
from truenorm.kernels.storage import format_of
from truenorm.ops.saved import Gradients, Saved

__all__ = ["backward", "forward"]


def forward(
    library: Library,
    settings: Settings,
    x: Any,
    gamma: Any,
    beta: Any,
    axis: int | Sequence[int],
    out: Any,
) -> tuple[Any, Saved]:
    """Normalize rows; the host does what the device refuses."""
    from truenorm.devices import calls

    _check_out(out)
    host = backend_named("reference")
    y, kept = calls.forward(library, host, settings, x, gamma, beta, axis)
    beta_dtype = None if beta is None else dtype_of(library.on_device("beta", beta).target)
    return y, Saved(x, gamma, beta_dtype, (x.ndim - 1,), settings._replace(backend="gpu"), kept)


def backward(library: Library, settings: Settings, dy: Any, saved: Saved, out: Any) -> Gradients:
    """Carry a gradient back."""
    from truenorm.devices import calls

    _check_out(out)
    host = backend_named("reference")
    beta = None if saved.beta_dtype is None else format_of(saved.beta_dtype)
    return Gradients(
        *calls.backward(library, host, settings, dy, saved.x, saved.gamma, beta, saved.kept)
    )


def _check_out(out: Any) -> None:
    if out is not None:
        raise ValueError("out is for arrays of NumPy: on a device, leave it out")
