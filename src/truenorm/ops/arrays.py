"""Arrays that are passed in: NumPy's, and those of other libraries through DLPack."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from truenorm.devices.arrays import check_negative_bit, is_on_device
from truenorm.exact import FloatFormat
from truenorm.kernels.storage import format_of

__all__ = ["as_array", "beside_device_array", "is_masked"]

DLPACK_CPU = 1
FOUR_TYPES = "float16, bfloat16, float32 or float64"


def as_array(name: str, value: Any) -> tuple[NDArray[Any], FloatFormat]:
    """Return an argument as an array of one of the four types, without a copy if it is one."""
    if is_masked(value):
        raise TypeError(
            f"{name} is a masked array, and what a masked element means to a mean is not defined: "
            f"pass {name}.filled(...) or {name}.data"
        )
    if not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__"):
        value = _from_dlpack(name, value)
    array = np.asarray(value)
    target = format_of(array.dtype)
    if target is None:
        if value is None:
            raise TypeError(f"{name} is None: pass an array of {FOUR_TYPES}")
        raise TypeError(
            f"{name} is of type {array.dtype}: pass {FOUR_TYPES}, "
            f"for instance {name}.astype(np.float64)"
        )
    return array, target


def beside_device_array(name: str, value: Any) -> Any:
    """Return an argument that goes with an x on a device: an array there, or one of NumPy.

    The latter is of native byte order, since its bytes are copied as they are.
    """
    if is_on_device(value):
        return value
    array, _ = as_array(name, value)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def is_masked(value: Any) -> bool:
    """Tell whether an argument is a masked array."""
    # The module need not be imported to say no; and while another thread imports it, it is empty.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and isinstance(value, masked)


def _from_dlpack(name: str, value: Any) -> NDArray[Any]:
    """Return the memory of an array of another library, if it is the CPU's and NumPy takes it."""
    try:
        device = value.__dlpack_device__()[0]
    except (BufferError, RuntimeError, TypeError, ValueError) as refused:
        # PyTorch's tensors on the device "meta" have a shape and a type, and no numbers.
        raise TypeError(
            f"{name} is on a device that DLPack does not know ({refused}): pass an array whose "
            "numbers are in the memory of the CPU"
        ) from refused
    if device != DLPACK_CPU:
        raise TypeError(f"{name} is on another device (DLPack type {device}): move it to the CPU")
    check_negative_bit(name, value)
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as refused:
        raise TypeError(
            f"{name} is a {type(value).__name__} of type {getattr(value, 'dtype', 'unknown')}, "
            f"which NumPy cannot take through DLPack ({refused}): {_way_out(name, value)}"
        ) from refused


def _way_out(name: str, value: Any) -> str:
    """Return what to pass instead of an array that NumPy refused; no framework is imported."""
    is_torch_bfloat16 = str(getattr(value, "dtype", None)) == "torch.bfloat16"
    if getattr(value, "requires_grad", False):
        # NumPy refuses bfloat16 even then: both are said at once.
        name += ".detach()"
        if not is_torch_bfloat16:
            return f"pass {name}, truenorm records no operations for automatic differentiation"
    if is_torch_bfloat16:
        return (
            f"pass {name}.view(torch.uint16).numpy().view(ml_dtypes.bfloat16), or "
            f"{name}.float().numpy(), which is float32"
        )
    return f"pass a NumPy array of {FOUR_TYPES}"
