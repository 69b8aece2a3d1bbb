"""Kernels that are compiled on their first call, and kept on disk for the next process.

Numba's own cache would not do. It looks at the file of a function alone, and after a change in a
helper runs the old code; two processes that compile at once can mix up its files; a damaged file
is an error. Here each compiled function has a file of its own, in a folder that is named after
all sources in the folder `compiled` and all versions that matter.

What is kept is pickled, and unpickling runs code: nothing is read that another user can have
written. Where nothing can be kept, kernels are compiled in memory.

So a kernel may use what is in that folder, NumPy and the standard library. A change elsewhere, of
a constant for instance, would not be noticed. And drivers may change without compiling anew.
"""

import hashlib
import os
import pickle
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, overload

import llvmlite  # type: ignore[import-untyped]
import numba
import numpy as np

__all__ = ["compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])

SOURCES = Path(__file__).parent / "compiled"
GROUND = Path(__file__).parents[1] / "ground.py"
FOLDERS_KEPT = 8
# Any other variable of Numba may change what is compiled, as NUMBA_BOUNDSCHECK does.
NO_MATTER = {"NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS"}
# There, owner and mode say nothing.
WINDOWS = sys.platform == "win32"


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
        # Compiled code goes by this name. Numba tells namesakes apart by a number, which in
        # another process belongs to another of them: then the wrong one is called.
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


class _Kept:
    """Where Numba looks before it compiles a function, and leaves what it compiled."""

    cache_path = None

    def __init__(self, function: Any, settings: dict[str, Any]) -> None:
        # A set has no order of its own.
        plain = {key: sorted(v) if isinstance(v, set) else v for key, v in settings.items()}
        line = function.__code__.co_firstlineno
        self._function = function.__module__, function.__qualname__, line, sorted(plain.items())

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the compiled function for these types, or None."""
        # Whatever is wrong with a file, or with our idea of Numba, compiling mends it.
        with suppress(Exception):
            for place in _places():
                content = _read(place, self._file(signature, context.codegen()))
                types, reduced = pickle.loads(content) if content else (None, None)
                if types == signature:
                    return _rebuilt(context, reduced)
        return None

    def save_overload(self, signature: Any, result: Any) -> None:
        """Keep a compiled function in the first place where that is possible."""
        with suppress(Exception):
            from numba.core.serialize import dumps

            # Lifted code and addresses are of this process alone.
            if not (result.lifted or result.library.has_dynamic_globals):
                name = self._file(signature, result.codegen)
                content = dumps((signature, result._reduce()))  # type: ignore[no-untyped-call]
                any(_write(place, name, content) for place in _places())

    def flush(self) -> None:
        """Do nothing: what is kept is never out of date."""

    def _file(self, signature: Any, codegen: Any) -> str:
        """Return a name for the function, the types, the processor and Numba's variables."""
        numbas = {key for key in os.environ if key.startswith("NUMBA_")} - NO_MATTER
        variables = [(key, os.environ[key]) for key in sorted(numbas)]
        key = repr((self._function, signature, codegen.magic_tuple(), variables))
        return f"{self._function[1]}-{_hash(key.encode()).hex()[:16]}"


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


def _hash(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def _digest() -> str:
    """Return a name for the sources as they are on disk, and for what compiles them."""
    versions = sys.version, numba.__version__, llvmlite.__version__, np.__version__
    with suppress(OSError):
        paths = sorted(SOURCES.rglob("*.py"))
        sources = [(str(path.relative_to(SOURCES)), _hash(path.read_bytes())) for path in paths]
        sources.append((GROUND.name, _hash(GROUND.read_bytes())))
        if paths:
            return "kernels-" + _hash(repr((versions, sources)).encode()).hex()[:16]
    return ""


IMPORTED = _digest()


def _places() -> Iterator[Path]:
    """Yield the folders that compiled code may be kept in, the preferred one first."""
    if not IMPORTED or _digest() != IMPORTED:
        # There are no sources, as in an archive, or they were edited after they were imported:
        # then nothing says what is being compiled.
        return
    if chosen := os.environ.get("TRUENORM_CACHE_DIR"):
        yield Path(chosen)
        return
    yield SOURCES / "__pycache__" / "compiled"
    # Without a home this is an error, which ends the search.
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if caches.is_absolute():
        yield caches / "truenorm"


def _read(place: Path, name: str) -> bytes | None:
    """Return what was kept, if it is whole and nobody else can have written it."""
    folder = place / IMPORTED
    with suppress(OSError):
        if _is_ours(place) and _is_ours(folder):
            with (folder / name).open("rb") as file:
                # Of the open file: its folder can be exchanged after it was looked at.
                content = file.read() if _only_we_write(os.fstat(file.fileno())) else b""
            if _hash(content[32:]) == content[:32]:
                with suppress(OSError):
                    os.utime(folder)  # it is in use
                return content[32:]
    return None


def _write(place: Path, name: str, content: bytes) -> bool:
    """Keep this, and tell whether that was possible."""
    with suppress(OSError):
        # Root must not make folders in somebody's home, who could not use them.
        above = next(folder for folder in (place, *place.parents) if folder.exists())
        if not WINDOWS and above.stat().st_uid not in {0, os.geteuid()}:
            return False
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return False
        folder = place / IMPORTED
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            _remove_all_but_the_last(place)
        if not _is_ours(folder):
            return False
        handle, unnamed = tempfile.mkstemp(dir=folder)
        os.close(handle)
        try:
            Path(unnamed).write_bytes(_hash(content) + content)
            # Another process sees the whole file or none.
            Path(unnamed).replace(folder / name)
        finally:
            Path(unnamed).unlink(missing_ok=True)
        return True
    return False


def _remove_all_but_the_last(place: Path) -> None:
    """Remove folders of other sources, those unused for longest; who still wants one compiles."""
    with suppress(OSError):  # another process is doing the same
        folders = sorted(place.glob("kernels-" + 16 * "?"), key=lambda path: path.stat().st_mtime)
        for folder in folders[:-FOLDERS_KEPT]:
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(place: Path) -> bool:
    """Tell whether a folder, and the link to it if it is one, is ours and closed to others."""
    return WINDOWS or (place.lstat().st_uid == os.geteuid() and _only_we_write(place.stat()))


def _only_we_write(status: os.stat_result) -> bool:
    """Tell whether what has this status is ours, and no other user can write to it."""
    return WINDOWS or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)
