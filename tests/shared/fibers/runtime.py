"""A runtime for the CUDA dialect on a CPU, where threads are fibers (`shim.hpp`).

Helpers run both passes by any runtime through the driver, and record what its kernels wrote.
"""

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from shared.kernels.calls import call_for
from shared.promise.checking import both_passes, bytes_of
from shared.promise.families import Case
from truenorm.api import backends
from truenorm.kernels.gpu.backend import GpuBackend
from truenorm.kernels.gpu.plan import Plan, source_of
from truenorm.kernels.gpu.runtime import Launcher, Runtime

SHIM = Path(__file__).parent / "shim.hpp"
OPTIONS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-DFIBERS")
JUMPS = "-U_FORTIFY_SOURCE"
"""Jumps between stacks, which a fortified C library forbids."""

MARGIN = 2**19
"""Bytes on each side of a buffer: a write there is reported, a read gives NaN."""

FILLING = 0xFF

NAMES = (f"gpu {number}" for number in count())
"""One backend name for each run: settings of a call are cached by name."""

Array = NDArray[Any]
Mutation = Callable[[str], str]


class ComplaintError(Exception):
    """A deadlock between threads, or a write outside a buffer."""


class Buffer:
    """Memory with margins."""

    def __init__(self, size: int) -> None:
        self._all = np.full(size + 2 * MARGIN, FILLING, np.uint8)
        self.inside: NDArray[np.uint8] = self._all[MARGIN : MARGIN + size]

    @property
    def has_clean_margins(self) -> bool:
        """True if no kernel wrote into the margins."""
        margins = self._all[:MARGIN], self._all[-MARGIN:]
        return all(bool((margin == FILLING).all()) for margin in margins)


class Fibers(Runtime):
    """Launches with schedules drawn from a seed; a mutation changes the source first."""

    name = "fibers"

    def __init__(self, seed: int, mutation: Mutation = str, **macros: str) -> None:
        self._draw, self._mutation = np.random.default_rng(seed), mutation
        self._macros = tuple(f"-D{name}={value}" for name, value in macros.items())

    def empty(self, nbytes: int) -> Buffer:
        return Buffer(nbytes)

    def fill(self, buffer: Buffer, value: np.generic, _nbytes: int) -> None:
        buffer.inside.view(value.dtype)[:] = value

    def download(self, buffer: Buffer, into: Array, start: int = 0) -> None:
        stored = buffer.inside[start : start + into.nbytes]
        into[...] = stored.view(into.dtype).reshape(into.shape)

    def write(self, array: Array, buffer: Buffer, start: int = 0) -> None:
        stored = np.ascontiguousarray(array).view(np.uint8).ravel()
        buffer.inside[start : start + stored.size] = stored

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        source = self._mutation(source_of(kernel))
        defined = (f"-D{name}={value}" for name, value in plan.macros.items())
        run = compiled(f"{source}\nLAUNCH({kernel})\n", (*defined, *self._macros))
        # Each argument has eight bytes: an address, a float64 or an int64.
        scalars = [
            np.array(np.uint64(each.inside.ctypes.data) if isinstance(each, Buffer) else each)
            for each in arguments
        ]
        values = (ctypes.c_void_p * len(scalars))(*(each.ctypes.data for each in scalars))
        seed = ctypes.c_uint64(int(self._draw.integers(2**63)))
        complaint = run(blocks, seed, len(scalars), values)
        if complaint is not None:
            raise ComplaintError(f"{kernel}: {complaint.decode()}")
        if not all(each.has_clean_margins for each in arguments if isinstance(each, Buffer)):
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
    options = [*OPTIONS, JUMPS, *macros, "-include", str(SHIM)]
    command = [compiler, *options, str(source), "-o", str(library)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    run = ctypes.CDLL(str(library)).launch
    run.restype = ctypes.c_char_p
    return run


@cache
def _folder() -> "TemporaryDirectory[str]":
    """Return a folder for compiled kernels, which is removed when the tests end."""
    return TemporaryDirectory()


class Recorder(Runtime):
    """A runtime that records the bytes of all arguments after each launch.

    Memory that no kernel writes is zero, so that two runtimes can be compared.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sizes: dict[int, int] = {}
        self._buffers: list[Any] = []
        self.launches: list[tuple[str, list[bytes]]] = []

    @property
    def name(self) -> str:
        return self._runtime.name

    def empty(self, nbytes: int) -> Any:
        buffer = self._runtime.zeros(nbytes)
        self._buffers.append(buffer)  # or another one could get its identity
        self._sizes[id(buffer)] = nbytes
        return buffer

    def fill(self, buffer: Any, value: np.generic, nbytes: int) -> None:
        self._runtime.fill(buffer, value, nbytes)

    def download(self, buffer: Any, into: Array, start: int = 0) -> None:
        self._runtime.download(buffer, into, start)

    def write(self, array: Array, buffer: Any, start: int = 0) -> None:
        self._runtime.write(array, buffer, start)

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        self._runtime.launch(kernel, plan, blocks, *arguments)
        self.launches.append((kernel, [self._bytes(each) for each in arguments]))

    def _bytes(self, argument: Any) -> bytes:
        if id(argument) not in self._sizes:
            return np.asarray(argument).tobytes()
        stored = np.zeros(self._sizes[id(argument)], np.uint8)
        self.download(argument, stored)
        return stored.tobytes()


def results_on(runtime: Runtime, case: Case) -> list[bytes]:
    """Return the bits of y, dx, dgamma and dbeta by a runtime."""
    with _named(runtime) as name:
        return bytes_of(*both_passes(case, name))


@contextmanager
def _named(runtime: Runtime) -> Iterator[str]:
    """Give a name to a backend of the runtime, with the reference as its fallback."""
    backend = GpuBackend(runtime, backends.backend_named("reference"))
    name = next(NAMES)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(backends.STATUSES, name, backends.STATUSES["gpu"])
        patched.setattr(backends, "_named", {name: backend}.__getitem__)
        yield name


def reference_results(case: Case) -> list[bytes]:
    """Return the same by the reference backend."""
    return bytes_of(*both_passes(case, "reference"))


def launcher_on(runtime: Runtime, case: Case) -> Launcher:
    """Return a launcher for a case of layer norm, without a driver."""
    parameters = (runtime.upload(each.astype(np.float32)) for each in case.parameters)
    return Launcher(runtime, call_for(case), *parameters)


def opencl_runtime() -> Any:
    """Return the device of the backend "gpu"; skip the test if there is none."""
    status = {each.name: each for each in tn.backends()}["gpu"]
    if not status.usable:
        pytest.skip(status.reason)
    from truenorm.kernels.gpu.opencl import default_runtime

    return default_runtime()
