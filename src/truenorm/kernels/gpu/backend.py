"""The backend as the driver sees it."""

from typing import Any

from truenorm.kernels.backend import Backend, Backward, Forward
from truenorm.kernels.call import Call, Flags
from truenorm.kernels.gpu.levels import DeviceBackward, DeviceForward
from truenorm.kernels.gpu.plan import LONGEST
from truenorm.kernels.gpu.runtime import Runtime
from truenorm.kernels.lattice.terms import Terms
from truenorm.kernels.rows import Source

__all__ = ["GpuBackend"]


class GpuBackend:
    """A device, and for what it refuses another backend on the host."""

    name = "gpu"
    core = None

    def __init__(self, runtime: Runtime, host: Backend) -> None:
        self._runtime, self._host = runtime, host

    def forward(self, call: Call, _special: Flags) -> Forward:
        """Return forward for a call."""
        check(call)
        return DeviceForward(self._runtime, call)

    def backward(self, call: Call, dy: Source) -> Backward[Any]:
        """Return backward for a call."""
        check(call)
        return DeviceBackward(self._runtime, call, self._host.backward(call, dy))

    def terms(self, call: Call) -> Terms[Any]:
        """Return how dgamma of a call at level 1 is summed on the lattice."""
        return self._host.terms(call)


def check(call: Call) -> None:
    """Raise if a call has float64 numbers, or rows that are too long."""
    if call.size > LONGEST:
        raise ValueError(
            f"rows have {call.size} elements: the backend 'gpu' takes at most {LONGEST}"
        )
    if call.level in ("pairs", "plain"):
        raise ValueError(
            "the backend 'gpu' takes float16, bfloat16 and float32, not float64: to be right, "
            "float64 needs pairs of them, which no kernel has; choose another backend"
        )
