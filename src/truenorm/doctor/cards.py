"""Devices to examine: what they are, and how arrays get there and back."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

from truenorm import dispatch
from truenorm.doctor.report import Line
from truenorm.doctor.surroundings import error_text

__all__ = ["CUDA_NEEDS", "INSTALL", "Card", "by_cuda", "by_opencl"]

INSTALL = (
    "pip install 'truenorm[opencl]', and a driver with OpenCL by the maker of the card; without a "
    "card, PoCL computes on the processor (Debian: apt-get install pocl-opencl-icd)"
)
CUDA_NEEDS = "not looked at: arrays on a card of NVIDIA need CuPy and truenorm[cuda]"


class Card(NamedTuple):
    """A device, and what is done with arrays there."""

    interface: str
    is_gpu: bool
    types: tuple[str, ...]
    facts: tuple[Line, ...]
    put: Callable[[Any], Any]
    get: Callable[[Any], Any]
    copy: Callable[[Any], Any]
    wait: Callable[[], object]


def by_opencl() -> Card | Line:
    """Return the device of the backend gpu, or why there is none."""
    status = next(each for each in dispatch.backends() if each.name == "gpu")
    if not status.usable:
        return Line("OpenCL", f"no device: {status.reason}", INSTALL)
    import pyopencl as cl
    import pyopencl.array as cl_array

    from truenorm.kernels.gpu.devices import opencl

    queue = opencl().queue
    device = queue.device
    is_gpu = bool(device.type & cl.device_type.GPU)
    facts = (
        Line("OpenCL", device.name.strip() + ("" if is_gpu else ": this is no GPU")),
        Line("driver", f"{device.platform.name.strip()}, {device.driver_version}"),
        Line("version", device.version.strip()),
        Line("units", f"{device.max_compute_units}, {device.global_mem_size / 1e9:.1f} GB"),
    )
    return Card(
        interface="OpenCL",
        is_gpu=is_gpu,
        types=("float16", "bfloat16", "float32"),
        facts=facts,
        put=lambda array: cl_array.to_device(queue, array),
        get=lambda array: array.get(),
        copy=lambda array: array.copy(),
        wait=queue.finish,
    )


def by_cuda() -> Card | Line:
    """Return a card of NVIDIA by arrays of CuPy, which have no bfloat16, or why there is none."""
    if find_spec("cupy") is None or find_spec("cuda") is None:
        return Line("CUDA", CUDA_NEEDS)
    try:
        import cupy

        found = cupy.cuda.runtime.getDeviceProperties(0)
        driver = cupy.cuda.runtime.driverGetVersion()
    except Exception as broken:  # without a card or a driver, whatever CuPy says
        return Line("CUDA", f"no card: {error_text(broken)}")
    facts = (
        Line("CUDA", f"{found['name'].decode()}, experimental"),
        Line("driver", f"of CUDA {driver // 1000}.{driver % 1000 // 10}"),
        Line("units", f"{found['multiProcessorCount']}, {found['totalGlobalMem'] / 1e9:.1f} GB"),
    )
    return Card(
        interface="CUDA",
        is_gpu=True,
        types=("float16", "float32"),
        facts=facts,
        put=cupy.asarray,
        get=cupy.asnumpy,
        copy=lambda array: array.copy(),
        wait=cupy.cuda.runtime.deviceSynchronize,
    )
