"""Kernels of other harnesses as functions of x, weight, bias and eps.

This file needs PyTorch alone. `truenorm.verify.harnesses` uses it, and copies it to the process of
a score.
"""

import importlib
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

Function = Callable[..., Any]
GROUPS = 2
"""Groups of a norm after a matrix product: more of them would make the matrices large."""
UNBOUNDED = 3e38
TINY = 2.0**-40
"""So small that the sigmoid of a product with it is 1/2."""


EPS = r"\beps\w*\s*=\s*([0-9.]+(?:e-?[0-9]+)?)"
"""A line of a reference that sets eps."""


class Task(NamedTuple):
    """A kernel, the operation that it computes, its form as for `torch_subject`, and its types.

    `backward` is True if autograd differentiates it, and `product` if x is multiplied by a matrix
    first: then one NaN makes a row of them, whatever the norm is.
    """

    kernel: Function
    operation: str
    form: str = "functional"
    dtypes: tuple[str, ...] = ("float32",)
    backward: bool = False
    product: bool = False


def load_file(path: str | Path) -> Any:
    """Execute a Python file and return its module."""
    path = Path(path).resolve()
    name = f"{path.stem}_{abs(hash(str(path)))}"  # a problem and a solution may have one name
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"there is no Python file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def attribute(module: Any, *names: str) -> Any:
    """Return the first attribute that a module has."""
    for name in names:
        if hasattr(module, name):
            return getattr(module, name)
    raise ValueError(f"{module.__file__} must define {' or '.join(names)}")


# KernelBench: classes Model and ModelNew.


class Layout(NamedTuple):
    """How a problem of KernelBench is called.

    `inputs` returns the arguments of its constructor, given the shape of x and those of the
    problem. `before` and `after` change x, and what was returned.
    """

    operation: str
    inputs: Callable[[Sequence[int], Sequence[Any]], list[Any]]
    before: Function = lambda x: x
    after: Function = lambda y, x: y.reshape(x.shape)
    optional: Mapping[str, Any] = {}
    """Arguments of the constructor, where it has them."""
    without_optional: Function | None = None
    """In place of `after`, where the constructor does not have them."""
    other: float = 0.0
    """The elements of a parameter that belongs to neither the matrix nor the norm."""
    by_column: bool = False
    """True if the least element of a row is returned: all but one are made large, by turns."""


def with_two_axes(x: Any) -> Any:
    """Return x of shape (N, C, S) as images of width 1; images stay."""
    return x.unsqueeze(-1) if x.ndim == 3 else x


def undo_leaky_sum(y: Any, _: Any) -> Any:
    """Return the y of which twice the leaky ReLU, of slope 0.01, was returned."""
    return (y / 2).where(y > 0, (y.double() / 0.02).to(y.dtype))


def alone(values: Mapping[str, Any], at: int) -> dict[str, Any]:
    """Return gamma and beta with which one column of y is the least of its row."""
    gamma, beta = values["gamma"] * 0, values["beta"] * 0 + UNBOUNDED
    gamma[at], beta[at] = values["gamma"][at], values["beta"][at]
    return {"gamma": gamma, "beta": beta}


def of_product(*others: Any) -> Callable[[Sequence[int], Sequence[Any]], list[Any]]:
    """Return the arguments of a square matrix product and a group norm, and further ones."""
    return lambda shape, _: [shape[-1], shape[-1], GROUPS, *others]


PRODUCT = f"layer_norm,groups={GROUPS},width=4096"  # its matrix has 64 megabytes
LAYOUTS = {
    "InstanceNorm": Layout(
        "instance_norm,gamma=false", lambda shape, _: [shape[1]], with_two_axes
    ),
    "GroupNorm": Layout("group_norm", lambda shape, given: [shape[1], given[1]], with_two_axes),
    "RMSNorm": Layout(
        "rms_norm,over=channels,gamma=false", lambda shape, _: [shape[1]], with_two_axes
    ),
    "FrobeniusNorm": Layout("rms_norm,divisor=sum,gamma=false", lambda *_: []),
    "L2Norm": Layout("rms_norm,divisor=sum,gamma=false", lambda *_: []),
    "LayerNorm": Layout("layer_norm", lambda shape, given: [tuple(shape[-len(given[0]) :])]),
    "Gemm_GroupNorm_Hardtanh": Layout(PRODUCT, of_product(-UNBOUNDED, UNBOUNDED)),
    "Matmul_GroupNorm_LeakyReLU_Sum": Layout(
        PRODUCT,
        of_product(),
        after=lambda y, _: y / 2,
        optional={"negative_slope": 1.0},
        without_optional=undo_leaky_sum,
    ),
    "Gemm_GroupNorm_Swish_Multiply_Swish": Layout(
        f"{PRODUCT},gate=self",
        lambda shape, _: [shape[-1], shape[-1], GROUPS, (shape[-1],)],
        after=lambda y, _: y * (2 / TINY),
        other=TINY,
    ),
    "Gemm_GroupNorm_Min_BiasAdd": Layout(
        f"layer_norm,groups={GROUPS},width=256",  # a call for each column
        lambda shape, _: [shape[-1], shape[-1], GROUPS, (1, shape[-1], 1, 1)],
        after=lambda y, _: y[0, 0, :, 0],
        other=-0.0,  # -0 + -0 is -0
        by_column=True,
    ),
}
"""By the name of the problem without its number."""
NOT_JUDGED = {
    "BatchNorm": "its statistics are those of a batch, and the judge has norms of rows",
    "L1Norm": "it divides by absolute values, and the judge has norms by squares",
}


def kernelbench(problem: str, solution: str) -> Task:
    """Return the class ModelNew of a solution as a kernel of the norm in a problem.

    Parameters get the values of each call: gamma, beta, and the identity for a matrix. Those of
    the solution are matched with those of the problem by the ends of their names.
    """
    name = re.sub(r"^\d+_|_+$", "", Path(problem).stem)
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        reason = NOT_JUDGED.get(name, f"expected a problem of KernelBench with one of {known}")
        raise ValueError(f"{Path(problem).name} cannot be judged: {reason}")
    source = load_file(problem)
    given = attribute(source, "get_init_inputs")()
    layout = LAYOUTS[name]
    kernel = _Model(layout, name, given, _Reference(_small(name, source, layout, given)))
    kernel.model = attribute(load_file(solution), "ModelNew")
    eps = kernel.reference.eps
    operation = layout.operation
    if name == "GroupNorm":
        operation += f",groups={given[1]}"
    if name == "LayerNorm" and len(given[0]) > 1:
        operation += f",axes={len(given[0])}"
    call = kernel.with_parameters if kernel.reference.has_gamma else kernel.without_parameters
    product = ",width=" in operation  # the size of its matrix
    return Task(call, f"{operation},eps={eps!r}", product=product)


def _small(name: str, source: Any, layout: Layout, given: Sequence[Any]) -> Any:
    """Return the model of a problem with few features: its own matrix may have gigabytes."""
    channels = 4 * (given[1] if name == "GroupNorm" else 1)
    shape = (2, *given[0]) if name == "LayerNorm" else (2, channels)
    return attribute(source, "Model")(*layout.inputs(shape, given))


class _Reference:
    """What the model of a problem says: eps, and the meaning of its parameters."""

    def __init__(self, model: Any) -> None:
        self.roles: dict[str, str] = {}
        self.axes: dict[str, int] = {}
        self.eps = float(getattr(model, "eps", 0.0))
        for path, module in model.named_modules():
            for name, parameter in module.named_parameters(recurse=False):
                full = f"{path}.{name}" if path else name
                self.roles[full], self.axes[full] = self._role(module, name), parameter.ndim
            if path and hasattr(module, "eps"):
                self.eps = float(module.eps)

    @staticmethod
    def _role(module: Any, name: str) -> str:
        if hasattr(module, "eps"):
            return {"weight": "gamma", "bias": "beta"}[name]
        if hasattr(module, "in_features"):
            return {"weight": "identity", "bias": "zero"}[name]
        return "other"

    @property
    def has_gamma(self) -> bool:
        """True if the norm has parameters."""
        return "gamma" in self.roles.values()

    def matched(self, axes: Mapping[str, int]) -> dict[str, str]:
        """Return the roles of the parameters of another model, given their numbers of axes.

        That of the problem with as many axes and the longest common end of the name is taken.
        """
        left, roles = dict(self.roles), {}

        def fit(name: str, other: str) -> tuple[bool, int]:
            return axes[name] == self.axes[other], _common(name, other)

        best = {name: max((fit(name, other) for other in left), default=None) for name in axes}
        for name in sorted(axes, key=lambda name: best[name] or (False, 0), reverse=True):
            other = max(left, key=partial(fit, name), default="")
            if not other or not _common(name, other):
                raise ValueError(
                    f"ModelNew has a parameter {name}; those of Model are "
                    f"{', '.join(self.roles) or 'none'}"
                )
            roles[name] = left.pop(other)
        return roles


def _common(name: str, other: str) -> int:
    """Return the length of the common end of two names."""
    pairs = zip(_usual(name), _usual(other), strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])


def _usual(name: str) -> str:
    """Return a name backwards, with the usual words for gamma and beta."""
    name = re.sub("gamma$", "weight", re.sub("beta$", "bias", name.replace(".", "_")))
    return name[::-1]


class _Model:
    """Calls of a model of KernelBench; the model of the last size is used again."""

    model: Any = None

    def __init__(
        self, layout: Layout, name: str, given: Sequence[Any], reference: _Reference
    ) -> None:
        self.layout, self.name, self.given, self.reference = layout, name, given, reference
        self._last: tuple[Any, Any] = (None, None)

    def with_parameters(self, x: Any, weight: Any, bias: Any, eps: float) -> Any:  # noqa: ARG002
        """Return y; the model has its own eps."""
        return self._call(x, {"gamma": weight, "beta": bias})

    def without_parameters(self, x: Any, eps: float) -> Any:  # noqa: ARG002
        """Return y; the model has its own eps."""
        if self.name == "FrobeniusNorm":  # the norm of the whole tensor: row by row
            torch = importlib.import_module("torch")
            return torch.cat([self._call(row, {}) for row in x.split(1)]) if len(x) else x.clone()
        return self._call(x, {})

    def _call(self, x: Any, values: dict[str, Any]) -> Any:
        torch = importlib.import_module("torch")
        with torch.no_grad():  # a harness compares y alone
            if not self.layout.by_column:
                return self._result(x, values)
            columns = range(x.shape[-1])
            return torch.stack([self._result(x, alone(values, at)) for at in columns], -1)

    def _result(self, x: Any, values: Mapping[str, Any]) -> Any:
        """Call the model with parameters of these values."""
        torch = importlib.import_module("torch")
        module = self._module(x)
        own = dict(module.named_parameters())
        roles = self.reference.matched({name: each.ndim for name, each in own.items()})
        options = {"dtype": x.dtype, "device": x.device}
        made: dict[str, Function] = {
            "identity": lambda shape: torch.eye(*shape, **options),
            "zero": lambda shape: torch.zeros(shape, **options),
            "other": lambda shape: torch.full(shape, self.layout.other, **options),
        }
        parameters = {
            name: made[role](own[name].shape) if role in made else values[role]
            for name, role in roles.items()
        }
        y = torch.func.functional_call(module, parameters, (self.layout.before(x),))
        return self._after(y, x)

    @cached_property
    def _optional(self) -> dict[str, Any]:
        """The optional arguments that the constructor has."""
        names = inspect.signature(self.model).parameters
        return {name: value for name, value in self.layout.optional.items() if name in names}

    @property
    def _after(self) -> Function:
        """The change of y; optional arguments make it exact."""
        without = self.layout.without_optional
        return without if without and not self._optional else self.layout.after

    def _module(self, x: Any) -> Any:
        """Return a model for the shape of x."""
        arguments = self.layout.inputs(tuple(x.shape), self.given)
        key = (arguments, x.dtype, x.device)
        if self._last[0] != key:
            made = self.model(*arguments, **self._optional).to(x.device, x.dtype)
            self._last = (key, made)
        return self._last[1]


# robust-kbench: functions forward_fn and backward.


def robust_kbench(problem: str, solution: str, operation: str = "") -> Task:
    """Return the functions of a solution as a kernel of the norm in a problem.

    `forward` of the solution takes the place of the problem's `forward_fn`; `backward` is called
    by the problem's class AutogradFunction.
    """
    source, own = load_file(problem), load_file(solution)
    reference = attribute(source, "forward_fn")
    names = list(inspect.signature(reference).parameters)
    if names[-1:] != ["eps"] or len(names) not in (3, 4):
        raise ValueError(
            f"{problem} cannot be judged: forward_fn must take x, weight, bias and eps, or x, "
            f"weight and eps; it takes {', '.join(names)}"
        )
    forward = getattr(own, "forward", getattr(own, "forward_fn", None))
    backward = getattr(own, "backward", getattr(own, "backward_fn", None))
    if backward is not None:
        function = attribute(source, "AutogradFunction")
        function.backward_fn = staticmethod(backward)
        forward = _with_forward(function, forward).apply
    if forward is None:
        raise ValueError(f"{solution} must define forward or backward")
    called: Function = forward if backward is not None else _without_gradients(forward)

    def rms_norm(x: Any, weight: Any, eps: float) -> Any:
        return called(x, weight, eps)

    def layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> Any:
        return called(x, weight, bias, eps)

    kernel = layer_norm if len(names) == 4 else rms_norm
    return Task(kernel, operation or kernel.__name__, backward=backward is not None)


def _without_gradients(function: Function) -> Function:
    """Return a function whose result autograd does not differentiate."""
    decorator: Function = importlib.import_module("torch").no_grad()
    decorated: Function = decorator(function)
    return decorated


def _with_forward(function: Any, forward: Function | None) -> Any:
    """Return a class of autograd whose y is that of another function, if it is given."""
    if forward is None:
        return function
    other: Function = forward

    class Both(function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            function.forward(ctx, *arguments)  # saves what backward needs
            return other(*arguments)

    return Both


# FlashInfer-Bench: a definition in JSON, and a function run.


def entry_point(folder: str, entry: str) -> Function:
    """Return the function ``file.py::name`` of a folder of sources, which are a package."""
    file, _, name = entry.partition("::")
    sys.path.insert(0, str(Path(folder).parent))
    parts = [Path(folder).name, *Path(file).with_suffix("").parts]
    found: Function = attribute(importlib.import_module(".".join(parts)), name)
    return found


def flashinfer_bench(
    definition: str, solution: str, *, returns: bool = False, entry: str = ""
) -> Task:
    """Return the function run of a solution, or its entry point, as a kernel of a definition.

    It writes to its last argument, or returns y.
    """
    described = json.loads(Path(definition).read_text(encoding="utf-8"))
    operations = {"rmsnorm": "rms_norm", "fused_add_rmsnorm": "add_rms_norm"}
    kind, inputs = described.get("op_type"), list(described["inputs"])
    if kind not in operations or len(described["outputs"]) != 1:
        names = ", ".join(operations)
        raise ValueError(f"{definition} cannot be judged: op_type must be {names}; got {kind!r}")
    eps = re.search(EPS, described["reference"], re.IGNORECASE)
    if eps is None:
        raise ValueError(f"{definition} cannot be judged: its reference has no line EPS = ...")
    operation = f"{operations[kind]},eps={float(eps[1])!r}"
    dtype = described["outputs"][next(iter(described["outputs"]))]["dtype"]
    if kind == "fused_add_rmsnorm" and dtype in ("float16", "bfloat16"):
        operation += ",sum=unrounded"
    run = entry_point(solution, entry) if entry else attribute(load_file(solution), "run")

    def call(out: Any, arguments: dict[str, Any]) -> None:
        given = [arguments[name] for name in inputs]
        if returns:
            out.copy_(run(*given))
        else:
            run(*given, out)

    def rms_norm(out: Any, x: Any, weight: Any, eps: float) -> None:  # noqa: ARG001
        call(out, {"hidden_states": x, "input": x, "x": x, "weight": weight})

    def add_rms_norm(
        out: Any,
        residual_out: Any,
        x: Any,
        residual: Any,
        weight: Any,
        eps: float,  # noqa: ARG001
    ) -> None:
        # A definition has y alone; the judge also compares the sum.
        residual_out.copy_(x + residual)
        call(out, {"hidden_states": x, "input": x, "residual": residual, "weight": weight})

    return Task(rms_norm if kind == "rmsnorm" else add_rms_norm, operation, "out", (dtype,))
