"""Both passes by a runtime, through the driver, and what its kernels wrote on the way."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import truenorm as tn
from kernels.calls import call_for
from promise.checking import both_passes, bytes_of
from promise.families import Case
from truenorm.api import backends
from truenorm.kernels.gpu.backend import GpuBackend
from truenorm.kernels.gpu.plan import Plan
from truenorm.kernels.gpu.runtime import Launcher, Runtime

__all__ = ["Seen", "by_reference", "launcher_on", "on", "opencl"]

NAMES = (f"gpu {number}" for number in count())
"""One for each run: settings of a call by a name are kept, with the backend."""


class Seen:
    """A runtime, and the bytes of every buffer that a launch was given, after it.

    What nobody writes is zero, so that two runtimes can be compared.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._sizes: dict[int, int] = {}
        self._buffers: list[Any] = []
        self.name = runtime.name
        self.download, self.write = runtime.download, runtime.write
        self.launches: list[tuple[str, list[bytes]]] = []

    def upload(self, array: NDArray[Any]) -> Any:
        return self._known(self._runtime.upload(array), array.nbytes)

    def zeros(self, size: int) -> Any:
        return self._known(self._runtime.zeros(size), size)

    empty = zeros

    def filled(self, count: int, value: float) -> Any:
        return self._known(self._runtime.filled(count, value), 4 * count)

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        self._runtime.launch(kernel, plan, blocks, *arguments)
        self.launches.append((kernel, [self._bytes(each) for each in arguments]))

    def _known(self, buffer: Any, size: int) -> Any:
        self._buffers.append(buffer)  # or another one could get its identity
        self._sizes[id(buffer)] = size
        return buffer

    def _bytes(self, argument: Any) -> bytes:
        if id(argument) not in self._sizes:
            return np.asarray(argument).tobytes()
        found = np.zeros(self._sizes[id(argument)], np.uint8)
        self.download(argument, found)
        return found.tobytes()


def on(runtime: Runtime, case: Case) -> list[bytes]:
    """Return the bits of y, dx, dgamma and dbeta by a runtime."""
    with _named(runtime) as name:
        return bytes_of(*both_passes(case, name))


def launcher_on(runtime: Runtime, case: Case) -> Launcher:
    """Return what launches the kernels of a case of layer norm, without a driver."""
    parameters = (runtime.upload(each.astype(np.float32)) for each in case.parameters)
    return Launcher(runtime, call_for(case), *parameters)


@contextmanager
def _named(runtime: Runtime) -> Iterator[str]:
    """Give a name to a backend of the runtime, with the reference for a host."""
    backend = GpuBackend(runtime, backends.backend_named("reference"))
    name = next(NAMES)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(backends.STATUSES, name, backends.STATUSES["gpu"])
        patched.setattr(backends, "_named", {name: backend}.__getitem__)
        yield name


def by_reference(case: Case) -> list[bytes]:
    """Return the same by NumPy."""
    return bytes_of(*both_passes(case, "reference"))


def opencl() -> Runtime:
    """Return the device of the backend "gpu"; skip the test if there is none."""
    status = {each.name: each for each in tn.backends()}["gpu"]
    if not status.usable:
        pytest.skip(status.reason)
    from truenorm.kernels.gpu import runtime

    return runtime.opencl()
