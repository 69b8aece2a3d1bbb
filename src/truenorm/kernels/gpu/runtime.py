"""What an interface must offer: memory of a device, and kernels launched on it."""

from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.call import Call
from truenorm.kernels.gpu.opencl import OpenCL
from truenorm.kernels.gpu.plan import Plan
from truenorm.kernels.tuning import SUMS

Buffer = Any
"""Memory of a device, in whatever form the interface takes it."""


class Runtime(Protocol):
    """Does all of this in order; only what copies from or to NumPy waits."""

    @property
    def name(self) -> str:
        """What the device calls itself."""

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Return a copy on the device."""

    def empty(self, size: int) -> Buffer:
        """Return so many bytes."""

    def zeros(self, size: int) -> Buffer:
        """Return so many bytes that are zero."""

    def filled(self, count: int, value: float) -> Buffer:
        """Return so many float32 numbers that are all the same."""

    def download(self, buffer: Buffer, into: NDArray[Any], start: int = 0) -> None:
        """Copy from a byte on, when all that was launched is done."""

    def write(self, array: NDArray[Any], buffer: Buffer, start: int = 0) -> None:
        """Copy to the device, from a byte on."""

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Have blocks of the plan's threads, if any, run a kernel; numbers are NumPy's."""


class Found(NamedTuple):
    """A device, or None, and what is to be said of it."""

    device: cl.Device | None
    told: str


def missing_of(device: cl.Device) -> str:
    """Return what a device lacks for the promise; nothing if it has all."""
    if not device.double_fp_config & cl.device_fp_config.FMA:
        return "has no float64"
    if not device.single_fp_config & cl.device_fp_config.DENORM:
        return "takes subnormal float32 numbers for zero"
    return ""


@cache
def first_device() -> Found:
    """Look for a device."""
    try:
        devices = [each for platform in cl.get_platforms() for each in platform.get_devices()]
    except cl.Error as refused:
        devices, lacking = [], [f"OpenCL says {refused}"]
    else:
        lacking = [
            f"{each.name.strip()} {missing_of(each)}" for each in devices if missing_of(each)
        ]
    devices.sort(key=lambda each: not each.type & cl.device_type.GPU)
    for each in devices:
        if not missing_of(each):
            kind = "" if each.type & cl.device_type.GPU else ", which is no GPU"
            return Found(each, f"OpenCL on {each.name.strip()}{kind}; float16 to float32")
    reasons = "; ".join(lacking) or "a driver has none"
    return Found(None, f"needs an OpenCL device with float64: {reasons}")


@cache
def opencl() -> OpenCL:
    """Return the device, ready to be used."""
    device = first_device().device
    assert device is not None  # or the backend would have been refused
    return OpenCL(cl.CommandQueue(cl.Context([device])))


Indices = NDArray[np.int64]

NUMBERS = 9
"""That columns_again.c has of a row."""


class Launcher:
    """A call, its parameters as float32 on a device, and that device."""

    def __init__(
        self, runtime: Runtime, call: Call, gamma: Buffer, beta: Buffer, *, alone: bool = False
    ) -> None:
        self.runtime = runtime
        self._call, self._gamma, self._beta, self._alone = call, gamma, beta, alone
        self._eps = np.float64(call.eps)

    def forward(self, x: Buffer, y: Buffer, saved: Buffer, count: int) -> Buffer:
        """Have y of rows written, and what is saved; return what became of each."""
        plan, status = self._plan("forward"), self.runtime.zeros(count)
        self.runtime.launch(
            *("forward", plan, plan.blocks(count), x, self._gamma, self._beta, self._eps),
            *(y, saved, status, np.int64(count)),
        )
        return status

    def sums(self) -> Buffer:
        """Return sums over no rows: see `kernels.tuning`."""
        return self.runtime.zeros(SUMS * self._call.size * 8)

    def backward(
        self, dy: Buffer, x: Buffer, saved: Buffer, dx: Buffer, sums: Buffer, count: int
    ) -> Buffer:
        """Have dx of rows written, and sums added to; return what became of each row."""
        runtime, size = self.runtime, self._call.size
        plan, rows, status = self._plan("backward"), np.int64(count), self.runtime.zeros(count)
        runs = plan.runs(count)
        shares, bounds = runtime.empty(runs * size * 16), runtime.empty(runs * size * 4)
        numbers = runtime.empty(0 if plan.sums else count * 24)
        runtime.launch(
            *("backward", plan, plan.blocks(runs), dy, x, self._gamma, saved, self._eps),
            *(dx, shares, bounds, numbers, status, rows),
        )
        if not plan.sums:
            blocks = runs * plan.strips
            runtime.launch("shares", plan, blocks, dy, x, saved, numbers, shares, bounds, rows)
        runtime.launch("columns", plan, plan.strips, shares, bounds, sums, np.int64(runs))
        return status

    def forward_again(self, x: Buffer, y: Buffer, which: Indices) -> Buffer:
        """Have y of some rows written in pairs; return which of their elements are refused."""
        return self._again("forward_again", (x, self._gamma, self._beta), y, which)

    def backward_again(self, dy: Buffer, x: Buffer, dx: Buffer, which: Indices) -> Buffer:
        """Have dx of some rows written in pairs; return which of their elements are refused."""
        return self._again("backward_again", (dy, x, self._gamma), dx, which)

    def columns_again(
        self, dy: Buffer, x: Buffer, sums: Buffer, which: Indices, count: int
    ) -> None:
        """Have the sums of some columns over so many rows put right, in pairs."""
        plan, rows = self._plan("rows_again"), np.int64(count)
        numbers = self.runtime.empty(count * NUMBERS * 8)
        self.runtime.launch("rows_again", plan, plan.blocks(count), x, self._eps, numbers, rows)
        plan, columns = self._plan("columns_again"), self.runtime.upload(which)
        self.runtime.launch(
            *("columns_again", plan, plan.blocks(len(which)), dy, x, numbers, sums, columns),
            *(np.int64(len(which)), rows),
        )

    def rounded(self, sums: Buffer, kernel: str, target: FloatFormat, to: Buffer) -> Buffer:
        """Have dgamma or dbeta rounded to a type; return which columns are refused."""
        plan, flags = self._plan(kernel, target), self.runtime.empty(self._call.size)
        self.runtime.launch(kernel, plan, plan.strips, sums, to, flags)
        return flags

    def _again(
        self, kernel: str, given: tuple[Buffer, ...], results: Buffer, which: Indices
    ) -> Buffer:
        plan, count = self._plan(kernel), len(which)
        flags = self.runtime.empty(count * self._call.size)
        self.runtime.launch(
            *(kernel, plan, plan.blocks(count), *given, self._eps, results, flags),
            *(self.runtime.upload(which), np.int64(count)),
        )
        return flags

    def _plan(self, kernel: str, target: FloatFormat | None = None) -> Plan:
        call = self._call
        return Plan.of(
            kernel,
            call.size,
            target or call.x_format,
            centred=call.norm.centred,
            correct=call.arithmetic == "tier1",
            alone=self._alone,
        )


def widened(runtime: Runtime, parameter: Buffer, size: int, target: FloatFormat) -> Buffer:
    """Return a parameter as float32, on the device."""
    plan = Plan.of("widen", size, target, centred=False, correct=False)
    found = runtime.empty(4 * size)
    runtime.launch("widen", plan, plan.strips, parameter, found)
    return found
