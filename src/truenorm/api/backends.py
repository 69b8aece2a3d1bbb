"""List the backends, and choose one by name or automatically."""

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from truenorm.kernels.protocol import Backend


class BackendStatus(NamedTuple):
    """A backend, True if it can be used here, and the reason."""

    name: str
    usable: bool
    reason: str


def backends() -> list[BackendStatus]:
    """Return the backends and their status, the preferred one first.

    The last, `gpu`, is used for NumPy arrays only if it is named.

    Returns
    -------
    list of BackendStatus
        Name, usable, reason.

    Examples
    --------
    >>> import truenorm as tn
    >>> [status.name for status in tn.backends()]
    ['native', 'reference', 'gpu']
    """
    return [status() for status in STATUSES.values()]


def _native() -> BackendStatus:
    """Return the status of the C core."""
    from truenorm.kernels.native.availability import is_built, reason_for_absence

    if not is_built():
        return BackendStatus("native", False, reason_for_absence())
    from truenorm.kernels.native.backend import selected_instructions

    return BackendStatus("native", True, f"C core, {selected_instructions}")


def _reference() -> BackendStatus:
    return BackendStatus("reference", True, "needs NumPy alone")


def _gpu() -> BackendStatus:
    """Return the status of devices, which are searched once."""
    cards = "; arrays on cards of NVIDIA by CUDA, which is experimental" if _has_cuda() else ""
    if find_spec("pyopencl") is None:
        return BackendStatus(
            "gpu", False, f"needs pyopencl: pip install 'truenorm[opencl]'{cards}"
        )
    from truenorm.kernels.gpu.opencl import choose_device

    choice = choose_device()
    return BackendStatus("gpu", choice.device is not None, choice.reason + cards)


def _has_cuda() -> bool:
    return find_spec("cuda") is not None and find_spec("cuda.core") is not None


STATUSES: dict[str, Callable[[], BackendStatus]] = {
    "native": _native,
    "reference": _reference,
    "gpu": _gpu,
}
"""Status functions by name, the preferred backend first. That of `gpu` searches for devices."""

REPLACED = (
    "backend 'fused' was replaced by 'native', the C core: use backend='native' or leave it out"
)


def backend_named(name: Any) -> "Backend":
    """Return a backend by name, or the first that is usable if the name is None."""
    if name is None:
        return _automatic()
    if isinstance(name, str) and name == "fused":
        raise ValueError(REPLACED)
    if not isinstance(name, str) or name not in STATUSES:
        raise ValueError(f"backend must be None or one of {sorted(STATUSES)}, got {name!r}")
    return _named(name)


@cache  # errors are not cached: a backend may be installed later
def _named(name: str) -> "Backend":
    status = STATUSES[name]()
    if not status.usable:
        raise ValueError(f"backend {name!r} cannot be used: {status.reason}")
    return _load(name)


@cache
def _automatic() -> "Backend":
    """Return the first usable backend, and log it once."""
    chosen = next(status for check in STATUSES.values() if (status := check()).usable)
    if "logging" in sys.modules:  # slow to import; a program that logs has imported it
        logger = sys.modules["logging"].getLogger("truenorm")
        logger.info("truenorm uses the backend %r: %s", chosen.name, chosen.reason)
    return _load(chosen.name)


def _load(name: str) -> "Backend":
    """Import a backend when it is first needed."""
    if name == "native":
        from truenorm.kernels.native.backend import NativeBackend

        return NativeBackend(lambda: _named("reference"))
    from truenorm.kernels.reference.backend import ReferenceBackend

    if name == "gpu":
        from truenorm.kernels.gpu.backend import GpuBackend
        from truenorm.kernels.gpu.opencl import default_runtime

        return GpuBackend(default_runtime(), ReferenceBackend())
    return ReferenceBackend()
