"""Kernels that are loaded: how, and how to do without compiling what is not there."""

from collections.abc import Callable
from threading import local
from typing import Any

import numba

__all__ = ["NotKeptError", "loading", "needs_compiling", "rebuilt", "reduced"]


class NotKeptError(Exception):
    """A function is not at hand, and is not to be compiled."""


class _Loading(local):
    """Of each thread: whether functions are only loaded."""

    only = False


loading = _Loading()


def needs_compiling(run: Callable[[], object]) -> bool:
    """Run something on this thread unless that means compiling; return whether it does."""
    loading.only = True
    try:
        run()
    except NotKeptError:
        return True
    finally:
        loading.only = False
    return False


def reduced(result: Any) -> Any:
    """Return what can be kept of a compiled function.

    Numba adds the constants in Python of each function that is a part of it. Where there are none
    that would only import the modules of all these, some of Numba's own among them.
    """
    *rest, environments = result._reduce()
    return *rest, tuple(each for each in environments if each.consts)


def rebuilt(context: Any, kept: Any) -> Any:
    """Return the compiled function that was reduced to this."""
    from numba.core.compiler import CompileResult

    if numba.version_info.short == (0, 68):
        # Compiled code calls the run-time system. The rest of `refresh` is for compiling, and
        # takes 0.2 to 0.3 seconds.
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
    else:
        context.refresh()
    return CompileResult._rebuild(context, *kept)  # type: ignore[no-untyped-call]
