"""A runtime for the CUDA dialect on a processor: threads are fibers (`shim.hpp`)."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from truenorm.kernels.gpu.plan import Plan, source_of

__all__ = ["ComplaintError", "Fibers"]

SHIM = Path(__file__).parent / "shim.hpp"
OPTIONS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-DFIBERS")
JUMPS = "-U_FORTIFY_SOURCE"
"""Between stacks, which some systems forbid if nothing is said."""

MARGIN = 2**19
"""Bytes on each side of a buffer. Nobody writes there; who reads there gets NaN."""

FILLING = 0xFF

Bytes = NDArray[np.uint8]
Mutation = Callable[[str], str]


class ComplaintError(Exception):
    """Threads wait for others that do not come, or write beside a buffer."""


class Buffer:
    """Memory with margins."""

    def __init__(self, size: int) -> None:
        self._all = np.full(size + 2 * MARGIN, FILLING, np.uint8)
        self.inside: Bytes = self._all[MARGIN : MARGIN + size]

    @property
    def whole(self) -> bool:
        """Whether nobody wrote into the margins."""
        margins = self._all[:MARGIN], self._all[-MARGIN:]
        return all(bool((margin == FILLING).all()) for margin in margins)


class Fibers:
    """Launches with schedules that follow from a seed; a mutation changes the source first."""

    name = "fibers"

    def __init__(self, seed: int, mutation: Mutation = str, **macros: str) -> None:
        self._draw, self._mutation = np.random.default_rng(seed), mutation
        self._macros = tuple(f"-D{name}={value}" for name, value in macros.items())

    def upload(self, array: NDArray[Any]) -> Buffer:
        buffer = self.empty(array.nbytes)
        self.write(array, buffer)
        return buffer

    def empty(self, size: int) -> Buffer:
        return Buffer(size)

    def zeros(self, size: int) -> Buffer:
        buffer = self.empty(size)
        buffer.inside[:] = 0
        return buffer

    def filled(self, count: int, value: float) -> Buffer:
        return self.upload(np.full(count, value, np.float32))

    def download(self, buffer: Buffer, into: NDArray[Any], start: int = 0) -> None:
        found = buffer.inside[start : start + into.nbytes]
        into[...] = found.view(into.dtype).reshape(into.shape)

    def write(self, array: NDArray[Any], buffer: Buffer, start: int = 0) -> None:
        given = np.ascontiguousarray(array).view(np.uint8).ravel()
        buffer.inside[start : start + given.size] = given

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        source = self._mutation(source_of(kernel))
        defined = (f"-D{name}={value}" for name, value in plan.macros.items())
        run = compiled(f"{source}\nLAUNCH({kernel})\n", (*defined, *self._macros))
        # What a kernel is given has eight bytes each: an address, a float64 or an int64.
        given = [
            np.uint64(each.inside.ctypes.data) if isinstance(each, Buffer) else each
            for each in arguments
        ]
        places = [np.array(each) for each in given]
        values = (ctypes.c_void_p * len(places))(*(each.ctypes.data for each in places))
        seed = ctypes.c_uint64(int(self._draw.integers(2**63)))
        said = run(blocks, seed, len(places), values)
        if said is not None:
            raise ComplaintError(f"{kernel}: {said.decode()}")
        if not all(each.whole for each in arguments if isinstance(each, Buffer)):
            raise ComplaintError(f"{kernel}: it wrote beside a buffer")


@cache
def compiled(text: str, macros: tuple[str, ...]) -> Any:
    """Return the function that runs a kernel; skip the test if there is no compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder = Path(_folder().name)
    name = sha256(repr((text, macros)).encode()).hexdigest()[:16]
    source, library = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text(text, encoding="utf-8")
    command = [
        compiler,
        *OPTIONS,
        JUMPS,
        *macros,
        "-include",
        str(SHIM),
        str(source),
        "-o",
        str(library),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    run = ctypes.CDLL(str(library)).launch
    run.restype = ctypes.c_char_p
    return run


@cache
def _folder() -> "TemporaryDirectory[str]":
    """Return where what is compiled lies while the tests run."""
    return TemporaryDirectory()
