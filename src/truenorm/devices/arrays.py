"""Whose arrays they are, and how their memory is had."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from truenorm.exact import BFLOAT16, FLOAT64, FloatFormat
from truenorm.kernels.rows import format_of

if TYPE_CHECKING:
    from truenorm.kernels.gpu.runtime import Buffer, Runtime


CUDA, CUDA_MANAGED = 2, 13
"""What DLPack calls memory of such a card."""


class OnDevice(NamedTuple):
    """Memory of a device, as an array that is C-contiguous; and what the library has of it."""

    array: Any
    buffer: "Buffer"
    shape: tuple[int, ...]
    target: FloatFormat

    @property
    def nbytes(self) -> int:
        """The memory of all elements."""
        return math.prod(self.shape) * dtype_of(self.target).itemsize


class Library(Protocol):
    """Whoever arrays on a device belong to."""

    @property
    def runtime(self) -> "Runtime":
        """What launches kernels there."""

    def on_device(self, name: str, array: Any) -> OnDevice:
        """Return an array with its memory, of NumPy's a copy; raise if it cannot be taken."""

    def empty(self, shape: tuple[int, ...], target: FloatFormat) -> OnDevice:
        """Return new memory."""

    def kept(self, made: OnDevice) -> OnDevice:
        """Return memory that this call fills, for a later one."""

    def again(self, made: OnDevice) -> OnDevice:
        """Return memory that an earlier call has filled, when that is done."""

    def handed_over(self, made: OnDevice) -> Any:
        """Return memory that this call fills as an array; whoever uses it waits for that."""


def is_on_device(array: Any) -> bool:
    """Return True if an array is on a device that kernels run on."""
    return _is_of_pyopencl(array) or _dlpack_device(array) in (CUDA, CUDA_MANAGED)


def _is_of_pyopencl(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "pyopencl"


def library_of(x: Any, stream: Any) -> Library | None:
    """Return the library of an array on a device, to be used on a stream; None for any other."""
    if isinstance(x, np.ndarray) or not is_on_device(x):
        if stream is not None:
            raise ValueError(
                f"stream must be None for arrays that are not on a device, got {stream!r}: leave "
                "it out"
            )
        return None
    if _is_of_pyopencl(x):
        from truenorm.devices.opencl_arrays import OpenCLArrays

        return OpenCLArrays(x, stream)
    try:
        from truenorm.devices.cuda_arrays import CudaArrays
    except ImportError as missing:
        raise TypeError(
            f"x is on a card of NVIDIA, for which {missing.name} is missing: "
            "pip install truenorm[cuda], or move x to the CPU"
        ) from missing
    return CudaArrays(x, stream)


def _dlpack_device(x: Any) -> int | None:
    """Return what DLPack calls the device of an array; None if it knows of none."""
    try:
        return int(x.__dlpack_device__()[0])
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        return None  # whoever takes it for an array of the CPU says what is wrong with it


def check_negative_bit(name: str, array: Any) -> None:
    """Raise if an array is a tensor of PyTorch with the negative bit, as ``z.conj().imag`` is.

    DLPack has no such bit and exports the memory as it is: every sign would be wrong.
    """
    is_neg = getattr(array, "is_neg", None)
    if is_neg is not None and is_neg():
        tensor = f"{name}.detach()" if getattr(array, "requires_grad", False) else name
        raise TypeError(
            f"{name} must be a tensor without the negative bit (PyTorch's lazy negation), got a "
            f"{type(array).__name__} with it: pass {tensor}.resolve_neg()"
        )


def checked_target(name: str, dtype: Any) -> FloatFormat:
    """Return the type of an array; raise unless kernels take it."""
    if dtype is not None and not np.dtype(dtype).isnative:
        raise TypeError(
            f"{name} must be of native byte order on a device, got {dtype}: convert it before it "
            "is copied there"
        )
    target = None if dtype is None else format_of(np.dtype(dtype))
    if target is None or target is FLOAT64:
        raise TypeError(
            f"{name} is of type {dtype}: on a device float16, bfloat16 and float32 are taken"
        )
    return target


def dtype_of(target: FloatFormat) -> np.dtype[Any]:
    """Return the dtype of a type."""
    if target is not BFLOAT16:
        return np.dtype(target.name)
    import ml_dtypes  # or NumPy would have no name for what was passed

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found
