"""PyTorch, imported when a subject of it is made: the one module of the judge that does so."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from truenorm.verify.types import Array, dtype_of

__all__ = ["Tensors", "array_of", "is_module"]

Tensor = Any
"""The gate's environment has no PyTorch, and so no types of it."""


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError as missing:
        raise ValueError(
            "this subject needs PyTorch in the environment of truenorm: pip install torch"
        ) from missing
    return torch


def is_module(thing: object) -> bool:
    """Tell whether something is a class of modules."""
    return isinstance(thing, type) and issubclass(thing, _torch().nn.Module)


def array_of(thing: Any) -> Array:
    """Return what an array, or a tensor of any device, holds; PyTorch is imported by who has one.

    Examples
    --------
    >>> array_of([1.0, 2.0])
    array([1., 2.])
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(thing, torch.Tensor):
        return np.asarray(thing)
    held = Tensors(thing.device).array(thing)
    assert held is not None
    return held


class Tensors:
    """Arrays as tensors of a device, and back."""

    def __init__(self, device: Any) -> None:
        self.torch = _torch()
        self.device = self.torch.device(device)

    def of(self, array: Array) -> Tensor:
        """Return a tensor with the same numbers and strides; on a CPU it is the same memory."""
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        host = self._of_host(array)
        return host if self.device.type == "cpu" else self.copied(host)

    def _of_host(self, array: Array) -> Tensor:
        if array.dtype.name == "bfloat16":  # NumPy's is not PyTorch's
            return self.torch.from_numpy(array.view(np.uint16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def copied(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device with the same strides, which `clone` and `to` do not keep.

        The gaps between its rows hold no number.
        """
        steps = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
        room = 1 + sum(steps) if tensor.numel() else 0
        wide = self.torch.full((room,), np.nan, dtype=tensor.dtype, device=self.device)
        return wide.as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    def empty(self, like: Tensor, dtype: str) -> Tensor:
        """Return what a kernel writes to: contiguous, and no number before it does."""
        kind = getattr(self.torch, dtype)
        return self.torch.full(like.shape, np.nan, dtype=kind, device=self.device)

    def array(self, tensor: Tensor) -> Array | None:
        """Return what a tensor holds when the device is done; on a CPU it is the same memory.

        Except if a negation or conjugation is pending: PyTorch computes it in a copy.
        """
        if tensor is None:
            return None
        if not isinstance(tensor, self.torch.Tensor):
            raise TypeError(f"a result is of type {type(tensor).__name__}, and no tensor")
        if self.device.type != "cpu":
            self.torch.accelerator.synchronize(self.device)
        host = tensor.detach().cpu().resolve_conj().resolve_neg()
        if host.dtype == self.torch.bfloat16:
            bits: Array = host.view(self.torch.uint16).numpy()
            return bits.view(dtype_of("bfloat16"))
        numbers: Array = host.numpy()
        return numbers

    def write_back(self, array: Array, tensor: Tensor) -> None:
        """Show in an array what became of its tensor, if that is a copy on another device."""
        if self.device.type != "cpu" and array.flags.writeable:
            array[...] = self.array(tensor)

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Raise MemoryError where memory is short, which PyTorch says by errors of its own."""
        try:
            yield
        except RuntimeError as raised:
            of_device = isinstance(raised, self.torch.OutOfMemoryError)
            if of_device or "can't allocate memory" in str(raised):
                raise MemoryError(str(raised)) from raised
            raise

    def gradients(
        self, results: Sequence[Tensor], arriving: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Let autograd differentiate, as often as it is asked; None is what it does not reach."""
        pairs = [
            (result, gradient.to(result.dtype))
            for result, gradient in zip(results, arriving, strict=True)
            if result.requires_grad
        ]
        wanted = [each for each in inputs if each is not None]
        found = iter(
            self.torch.autograd.grad(
                [result for result, _ in pairs],
                wanted,
                [gradient for _, gradient in pairs],
                retain_graph=True,
                allow_unused=True,
            )
        )
        return [None if each is None else next(found) for each in inputs]

    def with_gradients(
        self,
        results: Sequence[Tensor],
        inputs: Sequence[Tensor],
        backward: Callable[[list[Array | None]], Sequence[Array | None]],
    ) -> list[Tensor]:
        """Return results as functions of inputs, whose gradients are what `backward` returns.

        It is given what arrives at each result, and returns what arrives at each input.
        """
        tensors = self

        class Known(self.torch.autograd.Function):  # type: ignore[misc, name-defined]
            @staticmethod
            def forward(context: Any, *given: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
                return tuple(results)

            @staticmethod
            def backward(context: Any, *arriving: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
                found = backward([tensors.array(each) for each in arriving])
                return tuple(
                    None if each is None else tensors.of(each).to(given.dtype)
                    for each, given in zip(found, inputs, strict=True)
                )

        return list(Known.apply(*inputs))
