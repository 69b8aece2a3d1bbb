"""What a call asks for beside its arrays, checked; variables override arguments."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from truenorm.dispatch import backend_named
from truenorm.kernels.call import Settings
from truenorm.kernels.norm import Norm
from truenorm.ops import arguments
from truenorm.ops.environment import Variables, variables

if TYPE_CHECKING:
    from truenorm.kernels.backend import Backend

__all__ = ["settings_of", "settings_of_backward"]

Value = TypeVar("Value")


def settings_of(
    norm: Norm, eps: Any, rounding: Any, backend: str | None, threads: int | None
) -> tuple["Backend", Settings]:
    """Return the backend of a call, and what the call asks for."""
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
    given = variables()
    plain = (backend is None or type(backend) is str) and (threads is None or type(threads) is int)
    return (_backward_again if plain else _checked_backward)(settings, backend, threads, given)


def _checked_backward(
    settings: Settings, backend: str | None, threads: int | None, given: Variables
) -> tuple["Backend", Settings]:
    chosen = _overridden("TRUENORM_BACKEND", given.backend, backend, backend_named)
    asked = arguments.threads_of(threads, given.threads)
    return chosen, settings if asked == settings.threads else settings._replace(threads=asked)


def _overridden(
    name: str, variable: str | None, argument: Any, read: Callable[[Any], Value]
) -> Value:
    """Return the value of a variable if it is set, else that of the argument.

    An error says that the variable is set: the caller may not know it.
    """
    if variable is None:
        return read(argument)
    try:
        return read(variable)
    except ValueError as error:
        raise ValueError(f"{name} is set to {variable!r}: {error}") from None


def _checked(
    norm: Norm,
    eps: Any,
    rounding: Any,
    backend: str | None,
    threads: int | None,
    given: Variables,
) -> tuple["Backend", Settings]:
    chosen = _overridden("TRUENORM_BACKEND", given.backend, backend, backend_named)
    return chosen, Settings(
        norm,
        arguments.eps_of(eps, norm),
        _overridden("TRUENORM_ROUNDING", given.rounding, rounding, arguments.rounding_of),
        chosen.name,
        arguments.threads_of(threads, given.threads),
    )


_again = lru_cache(maxsize=64)(_checked)
_backward_again = lru_cache(maxsize=64)(_checked_backward)
"""Most calls ask for what an earlier one did. What raises is not kept."""
