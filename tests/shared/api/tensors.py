"""Mocks of arrays of other libraries, none of which the gate has."""

from typing import Any

import numpy as np

from shared.api.helpers import Array, X


class DLPackArray:
    """An array of another library, exported through DLPack."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        if self.device != 1:
            raise AssertionError("memory of another device was requested")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


class TorchTensor:
    """Mock of the DLPack export of PyTorch 2.13."""

    def __init__(
        self,
        dtype: str,
        array: Array = X,
        *,
        device: str = "cpu",
        requires_grad: bool = False,
        negative: bool = False,
        conjugate: bool = False,
    ) -> None:
        self.dtype, self.array = f"torch.{dtype}", X.copy() if array is X else array
        self.device, self.requires_grad = device, requires_grad
        self.negative, self.conjugate = negative, conjugate

    def is_neg(self) -> bool:
        return self.negative

    def is_conj(self) -> bool:
        return self.conjugate

    def view(self, dtype: str) -> "TorchTensor":
        """Return a view as integers, which never require a gradient."""
        return TorchTensor(dtype, self.array.view(dtype))

    def __dlpack_device__(self) -> tuple[int, int]:
        if self.device == "meta":
            raise ValueError("Unknown device type meta for Dlpack")
        return 1, 0

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.conjugate:
            raise BufferError("Can't export tensors with the conjugate bit set")
        if self.dtype == "torch.bfloat16":
            raise RuntimeError("Unsupported dtype in DLTensor.")  # from within NumPy
        return self.array.__dlpack__(**options)


def tensor_of(array: Array) -> Any:
    return TorchTensor(array.dtype.name, np.array(array))
