"""Call kernels on PyTorch tensors, and convert arrays to tensors and back."""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Any

import numpy as np

from truenorm.verify.norms.norm import Norm
from truenorm.verify.running.array_functions import (
    Arguments,
    Values,
    arguments_of,
    arguments_of_norm,
    names_of,
)
from truenorm.verify.types import Array, dtype_of, numeric_dtype

TORCH_TYPES = {
    **{name: f"float8_{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2")},
    "e2m1": "float4_e2m1fn_x2",
    "e8m0": "uint8",
}
"""PyTorch's types of codes and scales in `out`; others have their own name."""
FILLS = (0x7F, 0x2A)
"""The bytes that codes are filled with by turns: unwritten ones differ between equal calls."""
Tensor = Any
"""The environment of the type checker has no PyTorch."""
Unpacking = Callable[[Array, int, int], Array]
"""Returns scales of another layout in rows, given the numbers of rows and of groups."""


def _torch() -> Any:
    try:
        import torch  # type: ignore[import-not-found]
    except ImportError as missing:
        raise ValueError(
            "this subject needs PyTorch in the environment of truenorm: pip install torch"
        ) from missing
    return torch


def is_module(value: object) -> bool:
    """Return True for a class of modules."""
    return isinstance(value, type) and issubclass(value, _torch().nn.Module)


def array_of(value: Any) -> Array:
    """Return an array or a tensor of any device as an array; PyTorch is not imported for that.

    Examples
    --------
    >>> array_of([1.0, 2.0])
    array([1., 2.])
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    array = Tensors(value.device).array(value)
    assert array is not None
    return array


class Tensors:
    """Converts arrays to tensors of a device, and back."""

    def __init__(self, device: Any) -> None:
        self.torch = _torch()
        self.device = self.torch.device(device)
        self._fills = cycle(FILLS)

    def of(self, array: Array) -> Tensor:
        """Return a tensor with the same numbers and strides; on a CPU it shares the memory."""
        if not array.flags.writeable or min(array.strides, default=0) < 0:
            array = array.copy()
        host = self._of_host(array)
        return host if self.device.type == "cpu" else self.copied(host)

    def _of_host(self, array: Array) -> Tensor:
        if array.dtype.name == "bfloat16":  # NumPy's is not PyTorch's
            return self.torch.from_numpy(array.view(np.uint16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def copied(self, tensor: Tensor) -> Tensor:
        """Return a copy on the device with the same strides, which `clone` and `to` change.

        The gaps between its rows are NaN.
        """
        steps = [(n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
        size = 1 + sum(steps) if tensor.numel() else 0
        wide = self.torch.full((size,), np.nan, dtype=tensor.dtype, device=self.device)
        return wide.as_strided(tensor.shape, tensor.stride()).copy_(tensor)

    def empty(self, shape: Sequence[int], name: str) -> Tensor:
        """Return a contiguous output tensor: floats are NaN, codes have one of `FILLS`."""
        kind = getattr(self.torch, TORCH_TYPES.get(name, name))
        if kind.itemsize > 1:
            return self.torch.full(shape, np.nan, dtype=kind, device=self.device)
        codes = self.torch.empty(shape, dtype=self.torch.uint8, device=self.device)
        return codes.fill_(next(self._fills)).view(kind)

    def array(self, tensor: Tensor) -> Array | None:
        """Wait for the device and return a tensor as an array; on a CPU it shares the memory.

        If a negation or conjugation is pending, PyTorch computes it in a copy.
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
        name = str(host.dtype).removeprefix("torch.")
        if name.startswith(("float8", "float4")):
            codes: Array = host.view(self.torch.uint8).numpy()
            with suppress(ImportError, AttributeError):  # codes in pairs have no type in NumPy
                return codes.view(numeric_dtype(name))
            return codes
        numbers: Array = host.numpy()
        return numbers

    def write_back(self, array: Array, tensor: Tensor) -> None:
        """Copy a tensor of another device back to its array, so that changes are seen."""
        if self.device.type != "cpu" and array.flags.writeable:
            array[...] = self.array(tensor)

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Raise MemoryError for the errors that PyTorch raises if memory is short."""
        try:
            yield
        except RuntimeError as error:
            of_device = isinstance(error, self.torch.OutOfMemoryError)
            if of_device or "can't allocate memory" in str(error):
                raise MemoryError(str(error)) from error
            raise

    def gradients(
        self, results: Sequence[Tensor], incoming: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the gradients by autograd, None for inputs that it does not reach."""
        pairs = [
            (result, gradient.to(result.dtype))
            for result, gradient in zip(results, incoming, strict=True)
            if result.requires_grad
        ]
        wanted = [each for each in inputs if each is not None]
        gradients = iter(
            self.torch.autograd.grad(
                [result for result, _ in pairs],
                wanted,
                [gradient for _, gradient in pairs],
                retain_graph=True,
                allow_unused=True,
            )
        )
        return [None if each is None else next(gradients) for each in inputs]


class Form(ABC):
    """A kernel of one form: a function or a module that is called by the roles of arguments."""

    differentiable = True
    """False if results are written to memory, which autograd does not see."""

    def __init__(
        self,
        function: Callable[..., Any],
        norm: Norm,
        tensors: Tensors,
        signature: str,
        unpack: Unpacking | None = None,
    ) -> None:
        self.function, self.norm, self.tensors, self.unpack = function, norm, tensors, unpack
        self.results, self.names = norm.outputs_of(backward=False), names_of(norm)
        if unpack is not None and "scale" not in self.results:
            raise ValueError(f"unpack is for scales that are returned; {norm.title} has none")
        self.arguments = self.match(signature)

    def match(self, signature: str) -> Arguments:
        """Match the arguments."""
        return arguments_of(
            self.function, arguments_of_norm(self.norm), signature, names=self.names
        )

    def arrays(self, results: Sequence[Tensor], x: Tensor) -> list[Array | None]:
        """Return results as arrays, with the scales in rows."""
        arrays = dict(zip(self.results, map(self.tensors.array, results), strict=True))
        scales = arrays.get("scale")
        if self.unpack is not None and scales is not None:
            *rows, groups = self.norm.result_shapes("scale", tuple(x.shape))[0]
            arrays["scale"] = self.unpack(scales, math.prod(rows), groups)
        return list(arrays.values())

    @abstractmethod
    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Return the results of forward, and further return values for an explicit backward."""

    def split(self, returned: Any) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Split return values into the results and the rest."""
        values = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        count = len(self.results)
        if len(values) < count:
            names = ", ".join(self.results)
            raise TypeError(f"it returned {len(values)} result, not {count}: {names}")
        return list(values[:count]), values[count:]


class Functional(Form):
    """``function(x, weight, eps) -> y``, or (y, sum) where a residual is added."""

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Call the function."""
        return self.split(self.arguments.call(self.function, values))


class Out(Form):
    """``function(out, x, weight, eps)`` writes y to `out`.

    Other results have arguments of their own; a sum may also replace the residual.
    """

    differentiable = False

    def match(self, signature: str) -> Arguments:
        """Match the arguments; by default, the results come first."""
        written = ["out", *(name for name in self.results[1:] if name != "sum")]
        wanted = [*written, *arguments_of_norm(self.norm)]
        return arguments_of(self.function, wanted, signature, names=self.names, optional=["sum"])

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Allocate the results and call the function."""
        first, *others = self.results
        written = {"out": self._empty(first, values["x"])}
        written |= {name: self._empty(name, values["x"]) for name in others if name != "sum"}
        if "sum" in others:
            in_place = "sum" not in self.arguments.roles
            role = "residual" if in_place else "sum"
            written[role] = (
                self.tensors.copied(values["residual"])
                if in_place
                else self._empty("sum", values["x"])
            )
        returned = self.arguments.call(self.function, {**values, **written})
        nothing_else = returned is None or any(returned is each for each in written.values())
        return list(written.values()), () if nothing_else else (returned,)

    def _empty(self, result: str, x: Tensor) -> Tensor:
        kind = self.norm.type_of(result, str(x.dtype).removeprefix("torch."))
        shape = self.norm.result_shapes(result, tuple(x.shape))[0]
        if result == "scale" and self.unpack is not None:
            *rows, groups = shape
            shape = (-(-math.prod(rows) // 128) * 128 * -(-groups // 4) * 4,)
        out = self.tensors.empty(shape, kind)
        # Kernels take the maximum of what is there and their own, as Transformer Engine does.
        return out.zero_() if result == "amax" else out


class InPlace(Form):
    """``function(x, residual, weight, eps)`` writes y to x, and the sum to the residual."""

    differentiable = False

    def match(self, signature: str) -> Arguments:
        """Match the arguments."""
        if self.norm.is_quantized:
            raise ValueError(
                "form 'inplace' is for a y of the type of x, and that of a quantized norm is "
                "another: give 'out', where the sum may replace the residual"
            )
        return super().match(signature)

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Call the function with copies of its inputs."""
        data = [name for name in self.norm.inputs_of("data") if name in ("x", "residual")]
        copies = {name: self.tensors.copied(values[name]) for name in data}
        returned = self.arguments.call(self.function, {**values, **copies})
        written = list(copies.values())
        nothing_else = returned is None or any(returned is each for each in written)
        return written, () if nothing_else or isinstance(returned, tuple) else (returned,)


class Module(Form):
    """A class of modules, or ``factory(D, eps)``: ``module(x)`` or ``module(x, residual)``."""

    def match(self, signature: str) -> Arguments:
        """Match the arguments of the constructor."""
        if settings := self.norm.inputs_of("setting"):
            raise ValueError(
                f"form 'module' has no argument for the {settings[0]}: wrap the module in a "
                f"function of {', '.join(arguments_of_norm(self.norm))}"
            )
        if isinstance(self.function, self.tensors.torch.nn.Module):
            raise ValueError(
                "expected a class of modules, or a function of D and eps, got one module: give "
                "lambda D, eps: MyNorm(D, eps=eps)"
            )
        if signature:
            return arguments_of(self.function, ["eps"], signature, names=self.names)
        try:
            arguments = arguments_of(self.function, ["eps"], names=self.names)
        except ValueError:
            if isinstance(self.function, type):
                raise
            arguments = Arguments(())
        return arguments if arguments.roles & {"shape", "size"} else Arguments(("size", "eps"))

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Construct a module, set its parameters to those of the case, and call it."""
        module = self.arguments.call(self.function, values).to(self.tensors.device)
        for name in self.norm.parameters:
            values[name] = self._set(module, name, values[name])
        data = [values[name] for name in self.norm.inputs_of("data")]
        return self.split(module(*data))

    def _set(self, module: Any, name: str, value: Tensor) -> Tensor:
        """Replace a parameter by a tensor, and return the new parameter."""
        known = [each for each, _ in module.named_parameters()]
        names = self.names[name]
        path = next((each for each in known if each.split(".")[-1].lower() in names), None)
        if path is None:
            has = ", ".join(known) or "none"
            raise ValueError(
                f"the module has no parameter for {name} ({', '.join(names)}); it has {has}"
            )
        owner, _, last = path.rpartition(".")
        parameter = None
        if value is not None:
            parameter = self.tensors.torch.nn.Parameter(value, requires_grad=value.requires_grad)
        setattr(module.get_submodule(owner), last, parameter)
        return parameter


FORMS: dict[str, type[Form]] = {
    "functional": Functional,
    "out": Out,
    "inplace": InPlace,
    "module": Module,
}
