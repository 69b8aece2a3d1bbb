"""OpenCL: the choice of a device, kernels launched on it, and arrays of pyopencl.

Any device with float64 will do, a CPU as well.
"""

from functools import cache, lru_cache
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
from numpy.typing import NDArray

from truenorm.exact import FloatFormat
from truenorm.kernels.gpu.plan import Plan, source_of
from truenorm.kernels.gpu.runtime import DeviceArray, Runtime, checked_target, dtype_of

Array = NDArray[Any]

OPTIONS = ["-cl-std=CL1.2"]
"""No option allows reordering or flushing; the source itself forbids contraction."""

ANY_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE


class OpenCL(Runtime):
    """A command queue of a device."""

    def __init__(self, queue: cl.CommandQueue) -> None:
        self.queue, self.context = queue, queue.context

    @property
    def name(self) -> str:
        """The name of the device."""
        return str(self.queue.device.name).strip()

    def empty(self, nbytes: int) -> cl.Buffer:
        """Allocate a buffer."""
        return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, max(nbytes, 1))

    def fill(self, buffer: cl.Buffer, value: np.generic, nbytes: int) -> None:
        """Fill a buffer with copies of a number."""
        cl.enqueue_fill_buffer(self.queue, buffer, value, 0, nbytes)

    def download(self, buffer: cl.Buffer, into: Array, start: int = 0) -> None:
        """Copy from byte `start` of a buffer, after all launches so far."""
        if into.size:
            cl.enqueue_copy(self.queue, into, buffer, src_offset=start)

    def write(self, array: Array, buffer: cl.Buffer, start: int = 0) -> None:
        """Copy to byte `start` of a buffer."""
        if array.size:
            cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(array), dst_offset=start)

    def launch(self, kernel: str, plan: Plan, blocks: int, *arguments: Any) -> None:
        """Launch a kernel with the threads of its plan."""
        if not blocks:
            return
        most = self.queue.device.max_work_group_size
        if plan.threads > most:
            raise ValueError(
                f"rows of {plan.size} elements need blocks of {plan.threads} threads, {self.name} "
                f"has at most {most}: use a backend on the CPU"
            )
        size = (blocks * plan.threads,)
        with _launching:  # a kernel object stores its arguments until it is launched
            compiled(self.context, kernel, plan)(self.queue, size, (plan.threads,), *arguments)


_launching = Lock()


@cache
def compiled(context: cl.Context, kernel: str, plan: Plan) -> cl.Kernel:
    """Return a kernel for the devices of a context."""
    options = [*OPTIONS, *(f"-D{name}={value}" for name, value in plan.macros.items())]
    return cl.Kernel(cl.Program(context, source_of(kernel)).build(options), kernel)


class Choice(NamedTuple):
    """The device of the backend "gpu", or None, and its description or why there is none."""

    device: cl.Device | None
    reason: str


@cache
def choose_device() -> Choice:
    """Return the first device that supports correct rounding, GPUs before CPUs."""
    try:
        devices = [each for platform in cl.get_platforms() for each in platform.get_devices()]
    except cl.Error as error:
        devices, reasons = [], [f"OpenCL reports {error}"]
    else:
        reasons = [f"{each.name.strip()} {gap}" for each in devices if (gap := gap_of(each))]
    devices.sort(key=lambda each: not each.type & cl.device_type.GPU)
    for each in devices:
        if not gap_of(each):
            kind = "" if each.type & cl.device_type.GPU else ", which is no GPU"
            return Choice(each, f"OpenCL on {each.name.strip()}{kind}; float16 to float32")
    reason = "; ".join(reasons) or "no driver offers a device"
    return Choice(None, f"needs an OpenCL device with float64: {reason}")


def gap_of(device: cl.Device) -> str:
    """Return what a device lacks for correct rounding, or an empty string."""
    if not device.double_fp_config & cl.device_fp_config.FMA:
        return "has no float64"
    if not device.single_fp_config & cl.device_fp_config.DENORM:
        return "flushes subnormal float32 numbers to zero"
    return ""


@cache
def default_runtime() -> OpenCL:
    """Return the chosen device with a queue of its own."""
    device = choose_device().device
    assert device is not None  # or the backend would not be usable
    return OpenCL(cl.CommandQueue(cl.Context([device])))


@lru_cache(maxsize=8)
def _runtime(queue: cl.CommandQueue) -> OpenCL:
    if gap := gap_of(queue.device):
        raise ValueError(
            f"{queue.device.name.strip()} {gap}, so its results would not be correctly rounded: "
            "use another device or the CPU"
        )
    if queue.properties & ANY_ORDER:
        raise ValueError(
            "kernels need an in-order queue, got one with OUT_OF_ORDER_EXEC_MODE_ENABLE: pass "
            "stream=, a queue without it"
        )
    return OpenCL(queue)


class OpenCLArrays:
    """Arrays of pyopencl on one queue."""

    def __init__(self, like: cl_array.Array, stream: Any) -> None:
        queue = like.queue if stream is None else stream
        if queue is None:
            raise ValueError("x has no queue: pass stream=, the queue to use")
        if not isinstance(queue, cl.CommandQueue):
            raise TypeError(f"stream must be None or a pyopencl.CommandQueue, got {stream!r}")
        self.runtime = _runtime(queue)

    def on_device(self, name: str, array: Any) -> DeviceArray:
        """Return the memory of an array, or a copy of a NumPy array; raise if unsupported."""
        if not isinstance(array, cl_array.Array):
            array = cl_array.to_device(self.runtime.queue, np.asarray(array, order="C"))
        target = checked_target(name, array.dtype)
        if not array.flags.c_contiguous:
            raise ValueError(f"{name} must be C-contiguous on a device: pass {name}.copy()")
        return self.wait_for(DeviceArray(array, _buffer_of(name, array), array.shape, target))

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> DeviceArray:
        """Allocate an array."""
        array = cl_array.empty(self.runtime.queue, shape, dtype_of(target))
        return DeviceArray(array, array.base_data, shape, target)

    def mark_written(self, array: DeviceArray) -> DeviceArray:
        """Return an array that this call writes, so that a later call can wait for it."""
        array.array.add_event(cl.enqueue_marker(self.runtime.queue))
        return array

    def wait_for(self, array: DeviceArray) -> DeviceArray:
        """Return an array; launches from now on wait for those that write it, on any queue."""
        if array.array.events:
            cl.enqueue_barrier(self.runtime.queue, wait_for=array.array.events)
        return array

    def export(self, array: DeviceArray) -> cl_array.Array:
        """Return a pyopencl array; other queues that use it wait for this call."""
        return self.mark_written(array).array


def _buffer_of(name: str, array: cl_array.Array) -> cl.Buffer:
    """Return the memory of an array, which may be a part of a larger buffer."""
    if not array.offset:
        return array.base_data
    try:
        return array.base_data.get_sub_region(array.offset, array.nbytes)
    except cl.RuntimeError as error:
        raise ValueError(
            f"{name} starts at byte {array.offset} of its buffer, which the device does not allow "
            f"for a kernel argument: pass {name}.copy()"
        ) from error
