"""What surrounds a call: variables that override its arguments, and the state of the processor."""

import os

__all__ = ["check_arithmetic", "overridden"]

# Kept in a list, so that the interpreter computes with them now and not when it compiles.
_ONE, _HALF_ULP, _SMALLEST_NORMAL, _SMALLEST = [1.0, 2.0**-53, 2.0**-1022, 5e-324]


def overridden(variable: str, given: str | None) -> str | None:
    """Return the value of an environment variable if it is set, else what was given."""
    return os.environ.get(variable) or given


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
