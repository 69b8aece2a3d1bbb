"""Which argument of somebody's function is which: by the names that kernels give them."""

import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.operations.norms import Norm
from truenorm.verify.types import Array, dtype_of

NAMES = {
    "x": ("input", "x", "hidden_states", "inputs", "inp"),
    "residual": ("residual", "residual_in", "res", "r"),
    "gamma": ("weight", "gamma", "w", "scale", "gain", "weights"),
    "beta": ("bias", "beta", "b"),
    "eps": ("eps", "epsilon", "variance_epsilon"),
    "shape": ("normalized_shape",),
    "size": ("hidden_size", "dim", "d", "n", "size", "features", "num_features"),
    "out": ("out", "output", "y", "result"),
    "dy": ("dy", "grad_output", "grad", "dout", "grad_out", "grad_y", "do"),
    "dsum": ("dsum", "grad_residual", "dresidual_out"),
}
"""By what the judge calls it: what kernels do, in small letters. A shape is [D], a size is D."""
OF_THE_ROW = ("shape", "size")
MAY_BE_NONE = ("residual", "beta")
"""What is None in the call of a kernel that has more than the operation."""


class Arguments(NamedTuple):
    """How a function is called: roles of arguments by their place, then by their name."""

    by_place: tuple[str, ...]
    by_name: tuple[tuple[str, str], ...] = ()

    def call(self, function: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Call a function with the values of each role; one that has none is None."""
        placed = [values.get(role) for role in self.by_place]
        return function(*placed, **{name: values.get(role) for name, role in self.by_name})


def role_of(name: str) -> str:
    """Return what an argument is, or nothing.

    Examples
    --------
    >>> role_of("X"), role_of("variance_epsilon"), role_of("cache")
    ('x', 'eps', '')
    """
    return next((role for role, names in NAMES.items() if name.lower() in names), "")


def arguments_of(
    function: Callable[..., Any], wanted: Sequence[str], signature: str = ""
) -> Arguments:
    """Find the arguments of a function; where it has no signature, they come in this order.

    Examples
    --------
    >>> arguments_of(lambda x, weight, eps=1e-6: x, ["x", "gamma", "eps"]).by_name
    (('x', 'x'), ('weight', 'gamma'), ('eps', 'eps'))
    >>> arguments_of(print, ["x", "gamma", "eps"], "input, normalized_shape, weight, eps").by_place
    ('x', 'shape', 'gamma', 'eps')
    """
    if signature:
        return _written(signature, wanted)
    parameters = _parameters(function)
    if parameters is None:
        return Arguments(tuple(wanted))
    placed, named, unknown = [], [], []
    left = [*wanted, *OF_THE_ROW]
    for each in parameters:
        required = each.default is each.empty
        role = role_of(each.name)
        if role in left:
            left.remove(role)
        elif not required:
            continue
        elif role not in MAY_BE_NONE or role in wanted:
            unknown.append(each.name)
            continue
        if each.kind is each.POSITIONAL_ONLY:
            placed.append(role)
        else:
            named.append((each.name, role))
    _refuse(unknown, [role for role in left if role in wanted])
    return Arguments(tuple(placed), tuple(named))


def _written(signature: str, wanted: Sequence[str]) -> Arguments:
    names = [name.strip() for name in signature.split(",")]
    roles = {name: role_of(name) for name in names}
    _refuse(
        [name for name, role in roles.items() if not role],
        [role for role in wanted if role not in roles.values()],
    )
    return Arguments(tuple(roles.values()))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function; None if it does not tell them."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # builtin, or an operator of torch.ops
        return None
    various = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [each for each in found if each.kind not in various]
    return named if named or not found else None


def _refuse(unknown: Sequence[str], missing: Sequence[str]) -> None:
    """Say which arguments are not known, and which were not found, with what was looked for."""
    if not unknown and not missing:
        return
    said = []
    if unknown:
        said.append(f"nothing is known of {', '.join(unknown)}")
    said += [f"{role} is none of its arguments ({', '.join(NAMES[role])})" for role in missing]
    raise ValueError(
        f"the arguments cannot be matched: {'; '.join(said)}; wrap it in a function that has these"
        " names, or write them in order, as signature='input, weight, eps'. An operation without"
        " beta is written layer_norm,beta=false"
    )


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


Values = dict[str, Any]
"""Tensors and numbers, by what the judge calls them."""


class Form(ABC):
    """A function or a module of one form, called by what its arguments mean."""

    differentiable = True
    """Whether autograd may know its results: what is written to memory, it does not see."""

    def __init__(
        self, function: Callable[..., Any], norm: Norm, tensors: Tensors, signature: str
    ) -> None:
        self.function, self.norm, self.tensors = function, norm, tensors
        self.results = norm.outputs_of(backward=False)
        self.arguments = self.matched(signature)

    def matched(self, signature: str) -> Arguments:
        """Find the arguments."""
        wanted = [*self.norm.inputs_of("data", "parameter"), "eps"]
        return arguments_of(self.function, wanted, signature)

    @abstractmethod
    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Return the results of forward, and what else it returned for an explicit backward."""

    def split(self, returned: Any) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Take apart what a function returned: its results, then the rest."""
        found = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
        count = len(self.results)
        if len(found) < count:
            names = ", ".join(self.results)
            raise TypeError(f"it returned {len(found)} result, not {count}: {names}")
        return list(found[:count]), found[count:]


class Functional(Form):
    """``function(x, weight, eps) -> y``, or (y, sum) where a residual is added."""

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Call it."""
        return self.split(self.arguments.call(self.function, values))


class Out(Form):
    """``function(out, x, weight, eps)`` writes y to `out`."""

    differentiable = False

    def matched(self, signature: str) -> Arguments:
        """Find the arguments, the first of which is `out` unless the names say otherwise."""
        if self.norm.adds:
            raise ValueError(
                "form is 'out', which has one result; what adds a residual has two: give "
                "'inplace', or wrap it in a function that returns both"
            )
        wanted = ["out", *self.norm.inputs_of("data", "parameter"), "eps"]
        return arguments_of(self.function, wanted, signature)

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Allocate what it writes to, and call it."""
        x = values["x"]
        kind = self.norm.type_of("y", str(x.dtype).removeprefix("torch."))
        out = self.tensors.empty(x, kind)
        returned = self.arguments.call(self.function, {**values, "out": out})
        return [out], () if returned is None or returned is out else (returned,)


class InPlace(Form):
    """``function(x, residual, weight, eps)`` writes y to x, and the sum to the residual."""

    differentiable = False

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Call it with copies."""
        data = self.norm.inputs_of("data")
        copies = {name: self.tensors.copied(values[name]) for name in data}
        returned = self.arguments.call(self.function, {**values, **copies})
        written = list(copies.values())
        ours = returned is None or any(returned is each for each in written)
        return written, () if ours or isinstance(returned, tuple) else (returned,)


class Module(Form):
    """A class of modules, or ``factory(D, eps)``: ``module(x) -> y``, or of x and residual."""

    def matched(self, signature: str) -> Arguments:
        """Find the arguments by which a module is made."""
        if isinstance(self.function, self.tensors.torch.nn.Module):
            raise ValueError(
                "this is one module, of one size and eps; give its class, or a function of both: "
                "lambda D, eps: MyNorm(D, eps=eps)"
            )
        if signature:
            return arguments_of(self.function, ["eps"], signature)
        try:
            found = arguments_of(self.function, ["eps"])
        except ValueError:
            if isinstance(self.function, type):
                raise
            found = Arguments(())
        roles = {*found.by_place, *(role for _, role in found.by_name)}
        return found if roles & {"shape", "size"} else Arguments(("size", "eps"))

    def run(self, values: Values) -> tuple[list[Tensor], tuple[Any, ...]]:
        """Make a module, give it the parameters of the case, and call it."""
        module = self.arguments.call(self.function, values).to(self.tensors.device)
        for name in self.norm.parameters:
            values[name] = self._set(module, name, values[name])
        data = [values[name] for name in self.norm.inputs_of("data")]
        return self.split(module(*data))

    def _set(self, module: Any, name: str, value: Tensor) -> Tensor:
        """Put a tensor in the place of a parameter, and return that parameter."""
        known = [each for each, _ in module.named_parameters()]
        path = next((each for each in known if each.split(".")[-1].lower() in NAMES[name]), None)
        if path is None:
            looked_for, has = ", ".join(NAMES[name]), ", ".join(known) or "none"
            raise ValueError(
                f"the module has no parameter for {name} ({looked_for}); it has {has}"
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
"""By name."""
