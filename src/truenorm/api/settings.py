"""What surrounds a call: variables that override its arguments, and the state of the processor."""

import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from truenorm.api import arguments
from truenorm.api.backends import backend_named
from truenorm.kernels.call import Norm, Settings

# Kept in a list, so that the interpreter computes with them now and not when it compiles.
_ONE, _HALF_ULP, _SMALLEST_NORMAL, _SMALLEST = [1.0, 2.0**-53, 2.0**-1022, 5e-324]


class Variables(NamedTuple):
    """What overrides arguments; None if it is not set, or empty."""

    backend: str | None
    rounding: str | None
    threads: str | None


def variables() -> Variables:
    """Return the environment variables that override arguments.

    `os.environ` raises and catches an error for each that is not set: three of them take as long
    as the rest of a small call. So the dictionary behind it, where there is one, is read.
    """
    behind = getattr(os.environ, "_data", None)
    if type(behind) is not dict:
        return Variables(*(os.environ.get(name) or None for name in NAMES))
    given = behind.get(_BACKEND), behind.get(_ROUNDING), behind.get(_THREADS)
    return NO_VARIABLES if given == _NOT_SET else _decoded(*given)


@lru_cache(maxsize=8)
def _decoded(*values: Any) -> Variables:
    decode = getattr(os.environ, "decodevalue", str)
    return Variables(*(None if value is None else decode(value) or None for value in values))


def _key(name: str) -> Any:
    """Return a name as the dictionary behind `os.environ` has it."""
    encode = getattr(os.environ, "encodekey", str)
    return encode(name)


NO_VARIABLES = Variables(None, None, None)
NAMES = ("TRUENORM_BACKEND", "TRUENORM_ROUNDING", "TRUENORM_THREADS")
_BACKEND, _ROUNDING, _THREADS = map(_key, NAMES)
_NOT_SET = (None, None, None)


def check_arithmetic() -> None:
    """Raise if this thread's arithmetic is not IEEE's: no bound holds then."""
    if _SMALLEST_NORMAL / 2 == 0 or _SMALLEST * _ONE == 0:
        raise RuntimeError(
            "this thread flushes subnormal numbers to zero, so results would be wrong. Usually a "
            "library compiled with -ffast-math did that when it was loaded, or "
            "torch.set_flush_denormal(True): load that library in another process, or call "
            "torch.set_flush_denormal(False)"
        )
    if _ONE + _HALF_ULP != 1 or _ONE + 3 * _HALF_ULP == 1 + 2 * _HALF_ULP:
        raise RuntimeError(
            "this thread does not round to nearest, so results would be wrong. Something called "
            "fesetround, as interval arithmetic does: have it restore FE_TONEAREST first"
        )


if TYPE_CHECKING:
    from truenorm.kernels.protocol import Backend


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
