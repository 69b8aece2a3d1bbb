"""What surrounds a call: variables that override its arguments, and the state of the processor."""

import os
from typing import Any, NamedTuple

__all__ = ["NO_VARIABLES", "Variables", "check_arithmetic", "variables"]

# Kept in a list, so that the interpreter computes with them now and not when it compiles.
_ONE, _HALF_ULP, _SMALLEST_NORMAL, _SMALLEST = [1.0, 2.0**-53, 2.0**-1022, 5e-324]


class Variables(NamedTuple):
    """What overrides arguments; None if it is not set, or empty."""

    backend: str | None
    rounding: str | None
    threads: str | None


def _of(name: str) -> str | None:
    return os.environ.get(name) or None


def variables() -> Variables:
    """Return the environment variables that override arguments.

    `os.environ` raises and catches an error for each that is not set: three of them take as long
    as the rest of a small call. So the dictionary behind it, where there is one, is asked first.
    """
    behind = getattr(os.environ, "_data", None)
    if type(behind) is dict and not (
        _BACKEND in behind or _ROUNDING in behind or _THREADS in behind
    ):
        return NO_VARIABLES
    return Variables(_of("TRUENORM_BACKEND"), _of("TRUENORM_ROUNDING"), _of("TRUENORM_THREADS"))


def _key(name: str) -> Any:
    """Return a name as the dictionary behind `os.environ` has it."""
    encode = getattr(os.environ, "encodekey", str)
    return encode(name)


NO_VARIABLES = Variables(None, None, None)
_BACKEND, _ROUNDING = _key("TRUENORM_BACKEND"), _key("TRUENORM_ROUNDING")
_THREADS = _key("TRUENORM_THREADS")


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
