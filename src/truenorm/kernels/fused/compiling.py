"""Kernels that are compiled on their first call, and kept on disk for the next process.

Numba's own cache would not do: after a change in a helper it runs the old code (docs/design).
Here each kernel has a file of its own, in a folder that is named after all sources in the folder
`compiled`, the constants of `kernels.ground`, how kernels are kept, and all versions that matter.
So a kernel may use what is there, NumPy and the standard library; a change elsewhere, of a
constant for instance, would not be noticed. And drivers may change without compiling anew.

Files are pickles, and unpickling runs code: `user_cache` reads none that another user can have
written. Where nothing can be kept, kernels are compiled in memory.
"""

import itertools
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, overload

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.bytecode import FunctionIdentity

from truenorm import user_cache
from truenorm.kernels.fused.first_call import loading as loading_module
from truenorm.kernels.fused.first_call.loading import (
    NotKeptError,
    loading,
    make_ready_for_linking,
    rebuilt,
    reduced,
)
from truenorm.kernels.fused.first_call.notice import tell

__all__ = ["FIRST_TO_TELL", "PART", "TALLY", "compiled", "folder", "kernel"]

Function = TypeVar("Function", bound=Callable[..., Any])

SOURCES = Path(__file__).parent / "compiled"
BESIDE = (Path(__file__).parents[1] / "ground.py", Path(__file__), Path(loading_module.__file__))
"""What kernels depend on, but for what is in that folder: constants, and how they are kept."""
# Any other variable of Numba may change what is compiled, as NUMBA_BOUNDSCHECK does.
NO_MATTER = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}

PART: Any = {"no_cfunc_wrapper": True}
"""For `numba.extending.overload` as well: no way in for C, which would be compiled too."""
TALLY: Counter[str] = Counter()
"""How many functions this process has compiled, and how many it has loaded."""
FIRST_TO_TELL = Lock()
"""Is taken by who first says, or need not say, that compiling takes time; never given back."""


def _number_apart() -> None:
    """Have Numba count functions from a number that no other process begins with.

    It tells namesakes apart by their number, and its own functions have many. What two processes
    compiled may meet in a third, and there one name must not stand for two functions.
    """
    if hasattr(FunctionIdentity, "_unique_ids"):  # private, of Numba 0.68
        FunctionIdentity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "big"))


_number_apart()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_number_apart)


@overload
def kernel(function: Function) -> Function: ...
@overload
def kernel(**options: Any) -> Callable[[Function], Function]: ...
def kernel(function: Any = None, **options: Any) -> Any:
    """Compile a function that Python calls, as `compiled` does, and keep it on disk."""
    if function is None:
        return partial(kernel, **options)
    dispatcher, settings = _dispatcher(function, options)
    # Private names, of Numba 0.68: `_cache` with two methods; in `_Kept` and
    # `first_call.loading` magic_tuple, lifted, has_dynamic_globals, _reduce, _rebuild, consts,
    # _shared_module, dumps and rtsys. If one is missing nothing is kept.
    if _has_cache(dispatcher):
        dispatcher._cache = _Kept(function, settings)
    return dispatcher


@overload
def compiled(function: Function) -> Function: ...
@overload
def compiled(**options: Any) -> Callable[[Function], Function]: ...
def compiled(function: Any = None, **options: Any) -> Any:
    """Compile a function with Numba when a kernel that calls it is compiled.

    It becomes a part of each kernel, for each combination of types, and is not kept by itself.
    What Python would need to call it would take a third of the time that compiling takes.

    Parameters
    ----------
    function : callable
        A function at the top of its module.
    **options
        Of `numba.njit`, such as fastmath. Unless told otherwise, the lock of the interpreter is
        released, and division by zero gives what IEEE 754 says. Nothing can be allocated: then
        Numba need not count who refers to an array, which it would do for every slice.

    Returns
    -------
    callable
        With NUMBA_DISABLE_JIT=1 the function itself.
    """
    if function is None:
        return partial(compiled, **options)
    dispatcher, _ = _dispatcher(function, options)
    if _has_cache(dispatcher):
        dispatcher._cache = _Counted()
        # Private as well. Python must not find what it would crash on: its own way in is missing.
        dispatcher.add_overload = partial(_add_for_kernels, dispatcher)
        dispatcher._compile_for_args = partial(_refuse, function)
        dispatcher.targetoptions["no_cpython_wrapper"] = True
    return dispatcher


def _dispatcher(function: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what Numba makes of a function, and with which settings."""
    if "<locals>" in function.__qualname__:
        # Compiled code goes by this name, and so does its file.
        raise TypeError(f"{function.__qualname__} is inside a function: move it to the top")
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
    settings |= PART | options
    return numba.njit(**settings)(function), settings


def _has_cache(dispatcher: Any) -> bool:
    cache = getattr(dispatcher, "_cache", None)
    return hasattr(cache, "load_overload") and hasattr(cache, "save_overload")


def _add_for_kernels(dispatcher: Any, result: Any) -> None:
    """Note what was compiled where kernels look for it, and not where Python does."""
    dispatcher.overloads[tuple(result.signature.args)] = result


def _refuse(function: Any, *_: Any, **__: Any) -> None:
    raise TypeError(f"{function.__qualname__} is a part of kernels: Python can call those alone")


class _Counted:
    """Where Numba looks before it compiles a function: there is nothing, but it is counted."""

    cache_path = None

    def load_overload(self, signature: Any, _context: Any) -> Any:
        """Return None, if the function may be compiled."""
        if loading.only:
            raise NotKeptError
        make_ready_for_linking()
        TALLY["compiled"] += 1
        if FIRST_TO_TELL.acquire(blocking=False):
            with suppress(Exception):  # of a stream that is closed, for instance
                tell(signature, folder)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: what is kept is never out of date."""


class _Kept(_Counted):
    """Where Numba looks before it compiles a kernel, and leaves what it compiled.

    Whatever goes wrong, with a file or with our idea of Numba, compiling mends it.
    """

    def __init__(self, function: Any, settings: dict[str, Any]) -> None:
        # A set has no order of its own.
        plain = {key: sorted(v) if isinstance(v, set) else v for key, v in settings.items()}
        self._allocates = bool(settings.get("_nrt", True))
        line = function.__code__.co_firstlineno
        self._function = function.__module__, function.__qualname__, line, sorted(plain.items())

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled kernel for these types, or None."""
        with suppress(Exception):
            name = self._file(signature, context.codegen())
            types, kept = pickle.loads(user_cache.read(folder(), name))
            if types == signature:
                found = rebuilt(context, kept, allocates=self._allocates)
                TALLY["loaded"] += 1
                return found
        return super().load_overload(signature, context)

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled kernel, if that is possible."""
        with suppress(Exception):
            from numba.core.serialize import dumps

            # Lifted code and addresses are of this process alone.
            if not (result.lifted or result.library.has_dynamic_globals):
                content = dumps((signature, reduced(result)))  # type: ignore[no-untyped-call]
                user_cache.write(folder(), self._file(signature, result.codegen), content)

    def _file(self, signature: Any, codegen: Any) -> str:
        """Return a name for the function, the types, the processor and Numba's variables."""
        numbas = {key for key in os.environ if key.startswith("NUMBA_")} - NO_MATTER
        variables = [(key, os.environ[key]) for key in sorted(numbas)]
        key = repr((self._function, signature, codegen.magic_tuple(), variables))
        return f"{self._function[1]}-{_short(key)}"


def _short(key: str) -> str:
    return user_cache.digest(key.encode()).hex()[:16]


def _digest() -> str:
    """Return a name for the sources as they are on disk, and for what compiles them."""
    versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
    paths = *sorted(SOURCES.rglob("*.py")), *BESIDE
    return _digest_of(versions, paths, tuple(_stamp(path) for path in paths))


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what changes when a file is written."""
    status = path.stat()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


@lru_cache(maxsize=2)  # reading them for every kernel would take as long as loading it
def _digest_of(versions: tuple[str, ...], paths: tuple[Path, ...], _stamps: object) -> str:
    """Return the name for files, of which the last ones are not in the folder."""
    contents = [path.read_bytes() for path in paths]
    names = [str(path.relative_to(SOURCES)) for path in paths[: -len(BESIDE)]]
    return f"kernels-{_short(repr((versions, names, contents)))}" if names else ""


IMPORTED = _digest()


def folder() -> str:
    """Return the name of the folder for what is being compiled."""
    if not IMPORTED or _digest() != IMPORTED:
        # There are no sources, as in an archive, or they were edited after they were imported.
        raise OSError("nothing says what is being compiled")
    return IMPORTED
