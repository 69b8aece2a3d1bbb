"""The forms that kernels have: what each is called with, and where its results are."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from truenorm.verify.operations.norms import Norm
from truenorm.verify.tensors.arguments import NAMES, Arguments, arguments_of
from truenorm.verify.tensors.pytorch import Tensor, Tensors

__all__ = ["FORMS", "Form"]

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
