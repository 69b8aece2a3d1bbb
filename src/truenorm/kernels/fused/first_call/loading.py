"""Kernels that are loaded: how, and how to do without compiling what is not there."""

from collections.abc import Callable
from threading import local
from typing import Any

import numba
from llvmlite import binding  # type: ignore[import-untyped]

__all__ = [
    "NotKeptError",
    "loading",
    "make_ready_for_linking",
    "needs_compiling",
    "rebuilt",
    "reduced",
]


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


class _Linking:
    """Kernels that were loaded as machine code alone, and what others are linked with."""

    def __init__(self) -> None:
        self.is_near = False
        self.waiting: list[tuple[Any, bytes]] = []


_linking = _Linking()


def rebuilt(context: Any, kept: Any, *, allocates: bool) -> Any:
    """Return the compiled function that was reduced to this.

    Others that call it are linked with another form of its code, which takes most of the time to
    load and is hardly ever needed: in its place is a form that only says what there is to call.
    """
    from numba.core.compiler import CompileResult

    if numba.version_info.short != (0, 68):
        context.refresh()
    elif allocates:
        # It calls the run-time system. The rest of `refresh` is for compiling, and takes 0.2 to
        # 0.3 seconds.
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
    if _linking.is_near:
        return CompileResult._rebuild(context, *kept)  # type: ignore[no-untyped-call]
    (name, kind, (machine_code, code)), description, *rest = kept
    stub = f'define void @"{description.llvm_cpython_wrapper_name}"() {{ ret void }}'
    library = name, kind, (machine_code, binding.parse_assembly(stub).as_bitcode())
    found = CompileResult._rebuild(  # type: ignore[no-untyped-call]
        context, library, description, *rest
    )
    _linking.waiting.append((found.library, code))
    return found


def make_ready_for_linking() -> None:
    """Load the other form of what was loaded, and from now on at once: something is compiled.

    What it calls may be loaded while it is compiled. Linked with what only says its name, it would
    work here, where that is in memory, and end the next process, where it is not.
    """
    _linking.is_near = True
    while _linking.waiting:
        library, code = _linking.waiting.pop()
        library._shared_module = binding.parse_bitcode(code)
