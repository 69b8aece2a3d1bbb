"""Kernels that are compiled on their first call, and kept on disk for the next process.

Numba's own cache would not do: after a change in a helper it runs the old code (docs/design).
Here each compiled function has a file of its own, in a folder that is named after all sources in
the folder `compiled`, the constants of `kernels.ground` and all versions that matter. So a kernel
may use what is there, NumPy and the standard library; a change elsewhere, of a constant for
instance, would not be noticed. And drivers may change without compiling anew.

Files are pickles, and unpickling runs code: `user_cache` reads none that another user can have
written. Where nothing can be kept, kernels are compiled in memory.
"""

import itertools
import logging
import os
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Lock, local
from typing import Any, TypeVar, overload

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np
from numba.core.bytecode import FunctionIdentity

from truenorm import user_cache

__all__ = ["FIRST_TO_TELL", "SECONDS", "TALLY", "compiled", "folder", "needs_compiling"]

logger = logging.getLogger("truenorm")

Function = TypeVar("Function", bound=Callable[..., Any])

SOURCES = Path(__file__).parent / "compiled"
GROUND = Path(__file__).parents[1] / "ground.py"
# Any other variable of Numba may change what is compiled, as NUMBA_BOUNDSCHECK does.
NO_MATTER = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}

SECONDS = 25
"""What the first calls of one type take, forward and backward in correct mode: measured as
docs/engine.md says, section "The first call"."""
TYPES = {"int16": "float16", "uint16": "bfloat16", "float32": "float32", "float64": "float64"}
"""The data by how kernels hold them, the narrowest first: beside it there may be float64."""
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
def compiled(function: Function) -> Function: ...
@overload
def compiled(**options: Any) -> Callable[[Function], Function]: ...
def compiled(function: Any = None, **options: Any) -> Any:
    """Compile a function with Numba when it is first called, for each combination of types.

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
    if "<locals>" in function.__qualname__:
        # Compiled code goes by this name, and so does its file.
        raise TypeError(f"{function.__qualname__} is inside a function: move it to the top")
    settings: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False} | options
    dispatcher: Any = numba.njit(**settings)(function)
    # Private names, of Numba 0.68: `_cache` with these two methods; in `_Kept` and `_rebuilt`
    # magic_tuple, lifted, has_dynamic_globals, _reduce, _rebuild, dumps and rtsys. If one is
    # missing nothing is kept.
    cache = getattr(dispatcher, "_cache", None)
    if hasattr(cache, "load_overload") and hasattr(cache, "save_overload"):
        dispatcher._cache = _Kept(function, settings)
    return dispatcher


class _NotKeptError(Exception):
    """A function is not at hand, and is not to be compiled."""


class _Loading(local):
    """Of each thread: whether functions are only loaded."""

    only = False


_loading = _Loading()


def needs_compiling(run: Callable[[], object]) -> bool:
    """Run something on this thread unless that means compiling; return whether it does."""
    _loading.only = True
    try:
        run()
    except _NotKeptError:
        return True
    finally:
        _loading.only = False
    return False


class _Kept:
    """Where Numba looks before it compiles a function, and leaves what it compiled.

    Whatever goes wrong, with a file or with our idea of Numba, compiling mends it.
    """

    cache_path = None

    def __init__(self, function: Any, settings: dict[str, Any]) -> None:
        # A set has no order of its own.
        plain = {key: sorted(v) if isinstance(v, set) else v for key, v in settings.items()}
        line = function.__code__.co_firstlineno
        self._function = function.__module__, function.__qualname__, line, sorted(plain.items())

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled function for these types, or None."""
        with suppress(Exception):
            name = self._file(signature, context.codegen())
            types, reduced = pickle.loads(user_cache.read(folder(), name))
            if types == signature:
                found = _rebuilt(context, reduced)
                TALLY["loaded"] += 1
                return found
        if _loading.only:
            raise _NotKeptError
        TALLY["compiled"] += 1
        if FIRST_TO_TELL.acquire(blocking=False):
            with suppress(Exception):  # of a stream that is closed, for instance
                _tell(signature)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled function, if that is possible."""
        with suppress(Exception):
            from numba.core.serialize import dumps

            # Lifted code and addresses are of this process alone.
            if not (result.lifted or result.library.has_dynamic_globals):
                content = dumps((signature, result._reduce()))  # type: ignore[no-untyped-call]
                user_cache.write(folder(), self._file(signature, result.codegen), content)

    def flush(self) -> None:
        """Do nothing: what is kept is never out of date."""

    def _file(self, signature: Any, codegen: Any) -> str:
        """Return a name for the function, the types, the processor and Numba's variables."""
        numbas = {key for key in os.environ if key.startswith("NUMBA_")} - NO_MATTER
        variables = [(key, os.environ[key]) for key in sorted(numbas)]
        key = repr((self._function, signature, codegen.magic_tuple(), variables))
        return f"{self._function[1]}-{_short(key)}"


def _rebuilt(context: Any, reduced: Any) -> Any:
    """Return the compiled function that was reduced to this."""
    from numba.core.compiler import CompileResult

    if numba.version_info.short == (0, 68):
        # Compiled code calls the run-time system. The rest of `refresh` is for compiling, and
        # takes 0.2 to 0.3 seconds.
        from numba.core.runtime.nrt import rtsys

        rtsys.initialize(context)
    else:
        context.refresh()
    return CompileResult._rebuild(context, *reduced)  # type: ignore[no-untyped-call]


def _tell(signature: Any) -> None:
    """Say what is going to be compiled: to who listens, and on a terminal to who waits."""
    is_watched = os.environ.get("TRUENORM_QUIET", "") in {"", "0"} and sys.stderr.isatty()
    if not (is_watched or logger.isEnabledFor(logging.INFO)):
        return
    held = {str(each.dtype) for each in signature if hasattr(each, "dtype")}
    kind = next((f" for {name}" for code, name in TYPES.items() if code in held), "")
    once, then = "once", 'Run "truenorm warmup" to do it ahead'
    try:
        user_cache.place_of(folder())
    except (OSError, RuntimeError):
        once, then = "as every process will", '"truenorm doctor" says why nothing can be kept'
    text = f"compiling kernels{kind}, {once}; about {SECONDS} s. {then}"
    logger.info("truenorm: %s", text)
    if is_watched:
        sys.stderr.write(f"truenorm: {text}; TRUENORM_QUIET=1 silences this.\n")
        sys.stderr.flush()


def _short(key: str) -> str:
    return user_cache.digest(key.encode()).hex()[:16]


def _digest() -> str:
    """Return a name for the sources as they are on disk, and for what compiles them."""
    versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
    paths = sorted(SOURCES.rglob("*.py"))
    if not paths:
        return ""
    sources = [(str(path.relative_to(SOURCES)), path.read_bytes()) for path in paths]
    return f"kernels-{_short(repr((versions, sources, GROUND.read_bytes())))}"


IMPORTED = _digest()


def folder() -> str:
    """Return the name of the folder for what is being compiled."""
    if not IMPORTED or _digest() != IMPORTED:
        # There are no sources, as in an archive, or they were edited after they were imported.
        raise OSError("nothing says what is being compiled")
    return IMPORTED
