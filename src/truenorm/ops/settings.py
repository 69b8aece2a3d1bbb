"""What a call asks for beside its arrays, checked; variables override arguments."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from truenorm.dispatch import backend_named
from truenorm.kernels.call import Rounding, Settings
from truenorm.kernels.norm import Norm
from truenorm.ops import arguments
from truenorm.ops.environment import Variables, check_arithmetic, variables

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend

__all__ = ["settings_of", "settings_of_backward"]


def settings_of(
    norm: Norm, eps: Any, rounding: Any, backend: str | None, threads: int | None
) -> tuple["Backend", Settings]:
    """Return the backend of a call, and what the call asks for."""
    check_arithmetic()
    plain = (
        type(eps) is float
        and type(rounding) is str
        and (backend is None or type(backend) is str)
        and (threads is None or type(threads) is int)
    )
    return (_again if plain else _checked)(norm, eps, rounding, backend, threads, variables())


def settings_of_backward(
    settings: Settings, backend: str | None, threads: int | None
) -> tuple["Backend", Settings]:
    """Return the backend of a backward pass, and what that asks for."""
    check_arithmetic()
    given = variables()
    chosen = _backend_of(backend, given)
    asked = arguments.threads_of(threads, given.threads)
    return chosen, settings if asked == settings.threads else settings._replace(threads=asked)


def _backend_of(backend: str | None, given: Variables) -> "Backend":
    """Return the backend that a variable or an argument names; an error says which of them."""
    if given.backend is None:
        return backend_named(backend)
    try:
        return backend_named(given.backend)
    except ValueError as error:
        raise ValueError(f"TRUENORM_BACKEND is set to {given.backend!r}: {error}") from None


def _rounding_of(rounding: Any, given: Variables) -> Rounding:
    """Return the rounding that a variable or an argument names; an error says which of them."""
    if given.rounding is None:
        return arguments.rounding_of(rounding)
    try:
        return arguments.rounding_of(given.rounding)
    except ValueError as error:
        raise ValueError(f"TRUENORM_ROUNDING is set to {given.rounding!r}: {error}") from None


def _checked(
    norm: Norm,
    eps: Any,
    rounding: Any,
    backend: str | None,
    threads: int | None,
    given: Variables,
) -> tuple["Backend", Settings]:
    chosen = _backend_of(backend, given)
    return chosen, Settings(
        norm,
        arguments.eps_of(eps, norm),
        _rounding_of(rounding, given),
        chosen.name,
        arguments.threads_of(threads, given.threads),
    )


_again = lru_cache(maxsize=64)(_checked)
"""Most calls ask for what an earlier one did. What raises is not kept."""
