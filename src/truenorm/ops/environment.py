"""What surrounds a call: variables that override its arguments, and the state of the processor."""

import os
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = ["NO_VARIABLES", "Variables", "check_arithmetic", "variables"]

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
