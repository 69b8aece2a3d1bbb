"""Which device computes: the first graphics processor that can, or else another that can."""

from functools import cache
from typing import NamedTuple

import pyopencl as cl

from truenorm.kernels.gpu.opencl import OpenCL

__all__ = ["Found", "first_device", "missing_of", "opencl"]


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
