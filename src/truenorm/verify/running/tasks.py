"""Kernels of other harnesses as functions of x, weight, bias and eps.

This file needs PyTorch alone. `truenorm.verify.harnesses` uses it, and copies it to the process of
a score.
"""

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Function = Callable[..., Any]
EPS = r"\beps\w*\s*=\s*([0-9.]+(?:e-?[0-9]+)?)"
"""A line of a reference that sets eps."""


class Task(NamedTuple):
    """A kernel, the operation that it computes, its form as for `torch_subject`, and its types."""

    kernel: Function
    operation: str
    form: str = "functional"
    dtypes: tuple[str, ...] = ("float32",)


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
    """The operation of a problem, and the arguments of its constructor.

    `inputs` returns them, given the shape of x and the arguments of the problem. x of shape
    (N, C, S) becomes an image of width 1 where `images` is True.
    """

    operation: str
    inputs: Callable[[Sequence[int], Sequence[Any]], list[Any]]
    images: bool = False


LAYOUTS = {
    "InstanceNorm": Layout("instance_norm,gamma=false", lambda shape, _: [shape[1]], images=True),
    "GroupNorm": Layout("group_norm", lambda shape, given: [shape[1], given[1]], images=True),
    "RMSNorm": Layout(
        "rms_norm,over=channels,gamma=false", lambda shape, _: [shape[1]], images=True
    ),
    "FrobeniusNorm": Layout("rms_norm,divisor=sum,gamma=false", lambda *_: []),
    "L2Norm": Layout("rms_norm,divisor=sum,gamma=false", lambda *_: []),
    "LayerNorm": Layout("layer_norm", lambda shape, given: [tuple(shape[-len(given[0]) :])]),
}
"""By the name of the problem without its number."""
NOT_JUDGED = {
    "BatchNorm": "its statistics are those of a batch, and the judge has norms of rows",
    "L1Norm": "it divides by absolute values, and the judge has norms by squares",
}
ROLES = {"weight": "gamma", "gamma": "gamma", "bias": "beta", "beta": "beta"}
"""Of parameters, by the ends of their names."""


def kernelbench(problem: str, solution: str) -> Task:
    """Return the class ModelNew of a solution as a kernel of the norm in a problem."""
    name = re.sub(r"^\d+_|_+$", "", Path(problem).stem)
    if name not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        reason = NOT_JUDGED.get(name, f"expected a problem of KernelBench with one of {known}")
        raise ValueError(f"{Path(problem).name} cannot be judged: {reason}")
    source, layout = load_file(problem), LAYOUTS[name]
    given = attribute(source, "get_init_inputs")()
    channels = 4 * (given[1] if name == "GroupNorm" else 1)
    shape = (2, *given[0]) if name == "LayerNorm" else (2, channels)
    model = attribute(source, "Model")(*layout.inputs(shape, given))
    eps = next((float(each.eps) for each in model.modules() if hasattr(each, "eps")), 0.0)
    operation = layout.operation
    if name == "GroupNorm":
        operation += f",groups={given[1]}"
    if name == "LayerNorm" and len(given[0]) > 1:
        operation += f",axes={len(given[0])}"
    kernel = _Model(attribute(load_file(solution), "ModelNew"), name, given)
    has_gamma = any(True for _ in model.parameters())
    call = kernel.with_parameters if has_gamma else kernel.without_parameters
    return Task(call, f"{operation},eps={eps!r}")


class _Model:
    """Calls of a model of KernelBench; the model of the last size is used again."""

    def __init__(self, model: Function, name: str, given: Sequence[Any]) -> None:
        self.model, self.name, self.given, self.layout = model, name, given, LAYOUTS[name]
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
        module = self._module(x)
        parameters = {}
        for name, _ in module.named_parameters():
            role = ROLES.get(re.split(r"[._]", name)[-1])
            if values.get(str(role)) is None:
                raise ValueError(f"ModelNew has a parameter {name}, and Model has none like it")
            parameters[name] = values[str(role)]
        given = x.unsqueeze(-1) if self.layout.images and x.ndim == 3 else x
        with torch.no_grad():  # a harness compares y alone
            return torch.func.functional_call(module, parameters, (given,)).reshape(x.shape)

    def _module(self, x: Any) -> Any:
        """Return a model for the shape of x."""
        arguments = self.layout.inputs(tuple(x.shape), self.given)
        key = (arguments, x.dtype, x.device)
        if self._last[0] != key:
            self._last = (key, self.model(*arguments).to(x.device, x.dtype))
        return self._last[1]


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
