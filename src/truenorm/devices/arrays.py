"""Detection of arrays on a device, and of the library that they belong to.

Imported with the package: the libraries and kernels are imported when such an array is passed.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from truenorm.kernels.gpu.runtime import Library

CUDA, CUDA_MANAGED = 2, 13
"""Device types of DLPack."""


def is_on_device(array: Any) -> bool:
    """Return True if an array is on a device that kernels run on."""
    return _is_of_pyopencl(array) or _dlpack_device(array) in (CUDA, CUDA_MANAGED)


def library_of(x: Any, stream: Any) -> "Library | None":
    """Return the library of an array on a device, with a stream to use; None for CPU arrays."""
    if isinstance(x, np.ndarray) or not is_on_device(x):
        if stream is not None:
            raise ValueError(
                f"stream must be None for arrays that are not on a device, got {stream!r}: leave "
                "it out"
            )
        return None
    if _is_of_pyopencl(x):
        from truenorm.kernels.gpu.opencl import OpenCLArrays

        return OpenCLArrays(x, stream)
    try:
        from truenorm.kernels.gpu.cuda import CudaArrays
    except ImportError as missing:
        raise TypeError(
            f"x is on a CUDA device, which needs {missing.name}: pip install 'truenorm[cuda]', or "
            "move x to the CPU"
        ) from missing
    return CudaArrays(x, stream)


def _is_of_pyopencl(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "pyopencl"


def _dlpack_device(x: Any) -> int | None:
    """Return the DLPack device type of an array, or None if it has none."""
    try:
        return int(x.__dlpack_device__()[0])
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # the checks of CPU arrays report what is wrong


def check_negative_bit(name: str, array: Any) -> None:
    """Raise if an array is a PyTorch tensor with the negative bit, as ``z.conj().imag`` is.

    DLPack has no such bit and exports the memory as it is: every sign would be wrong.
    """
    is_neg = getattr(array, "is_neg", None)
    if is_neg is not None and is_neg():
        tensor = f"{name}.detach()" if getattr(array, "requires_grad", False) else name
        raise TypeError(
            f"{name} must be a tensor without the negative bit (PyTorch's lazy negation), got a "
            f"{type(array).__name__} with it: pass {tensor}.resolve_neg()"
        )
