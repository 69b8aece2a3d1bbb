"""Settings of a call: arguments, environment variables and the state of the processor."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from truenorm.api import arguments
from truenorm.api.backends import backend_named
from truenorm.kernels.call import Norm, Settings

if TYPE_CHECKING:
    from truenorm.kernels.protocol import Backend

Value = TypeVar("Value")

# In a list, so that the interpreter does not fold constants when it compiles.
_ONE, _HALF_ULP, _SMALLEST_NORMAL, _SMALLEST = [1.0, 2.0**-53, 2.0**-1022, 5e-324]


class Variables(NamedTuple):
    """Environment variables that override arguments; None if not set, or empty."""

    backend: str | None
    rounding: str | None
    threads: str | None


def variables() -> Variables:
    """Return the environment variables that override arguments.

    `os.environ` raises and catches an error for each variable that is not set. Three of them take
    as long as the rest of a small call. So this reads the dictionary behind it, if there is one.
    """
    behind = getattr(os.environ, "_data", None)
    if type(behind) is not dict:
        return Variables(*(os.environ.get(name) or None for name in NAMES))
    if _BACKEND in behind or _ROUNDING in behind or _THREADS in behind:
        return _decoded(behind.get(_BACKEND), behind.get(_ROUNDING), behind.get(_THREADS))
    return NO_VARIABLES


@lru_cache(maxsize=8)
def _decoded(*values: Any) -> Variables:
    decode = getattr(os.environ, "decodevalue", str)
    return Variables(*(None if value is None else decode(value) or None for value in values))


def _key(name: str) -> Any:
    """Return the key of a name in the dictionary behind `os.environ`."""
    encode = getattr(os.environ, "encodekey", str)
    return encode(name)


NO_VARIABLES = Variables(None, None, None)
NAMES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
_BACKEND, _ROUNDING, _THREADS = map(_key, NAMES)
KEYS = (_BACKEND, _ROUNDING, _THREADS, _key("OMP_NUM_THREADS"))
"""Keys of the variables that settings depend on, in the dictionary behind `os.environ`."""


def check_arithmetic() -> None:
    """Raise if the arithmetic of this thread is not IEEE 754 with rounding to nearest."""
    if _SMALLEST_NORMAL / 2 == 0 or _SMALLEST * _ONE == 0:
        raise RuntimeError(
            "this thread flushes subnormal numbers to zero, so results would be wrong. Usually a "
            "library compiled with -ffast-math did that when it was loaded, or "
            "torch.set_flush_denormal(True): load that library in another process, or call "
            "torch.set_flush_denormal(False). JAX runs callbacks on such threads: call truenorm "
            "on another thread there, as examples/jax_layer.py does"
        )
    if _ONE + _HALF_ULP != 1 or _ONE + 3 * _HALF_ULP == 1 + 2 * _HALF_ULP:
        raise RuntimeError(
            "this thread does not round to nearest, so results would be wrong. Something called "
            "fesetround, as interval arithmetic does: have it restore FE_TONEAREST first"
        )


def settings_of(
    norm: Norm, eps: Any, rounding: Any, backend: str | None, threads: int | None
) -> tuple["Backend", Settings]:
    """Return the backend and the settings of a call."""
    if type(eps) is not float:
        eps = arguments.eps_of(eps, norm)
    hashable = (
        type(rounding) is str
        and (backend is None or type(backend) is str)
        and (threads is None or type(threads) is int)
    )
    return (_cached if hashable else _checked)(norm, eps, rounding, backend, threads, variables())


def settings_of_backward(
    settings: Settings, backend: str | None, threads: int | None
) -> tuple["Backend", Settings]:
    """Return the backend and the settings of a backward pass."""
    hashable = (backend is None or type(backend) is str) and (
        threads is None or type(threads) is int
    )
    settings_for = _cached_backward if hashable else _checked_backward
    return settings_for(settings, backend, threads, variables())


def _checked_backward(
    settings: Settings, backend: str | None, threads: int | None, overrides: Variables
) -> tuple["Backend", Settings]:
    chosen = _overridden("TRUENORM_BACKEND", overrides.backend, backend, backend_named)
    count = arguments.threads_of(threads, overrides.threads)
    return chosen, settings if count == settings.threads else settings._replace(threads=count)


def _overridden(
    name: str, variable: str | None, argument: Any, read: Callable[[Any], Value]
) -> Value:
    """Return the value of a variable if it is set, else that of the argument.

    An error mentions the variable, since the caller may not know that it is set.
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
    overrides: Variables,
) -> tuple["Backend", Settings]:
    chosen = _overridden("TRUENORM_BACKEND", overrides.backend, backend, backend_named)
    return chosen, Settings(
        norm,
        arguments.eps_of(eps, norm),
        _overridden("TRUENORM_ROUNDING", overrides.rounding, rounding, arguments.rounding_of),
        chosen.name,
        arguments.threads_of(threads, overrides.threads),
    )


_cached = lru_cache(maxsize=64)(_checked)
_cached_backward = lru_cache(maxsize=64)(_checked_backward)
"""Most calls repeat earlier settings. Errors are not cached."""
