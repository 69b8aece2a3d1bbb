"""TVM: relax.op.nn compiled by LLVM, for any number of rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.onnx_node import Array

tvm: Any = import_module("tvm")
relax: Any = import_module("tvm.relax")
tir: Any = import_module("tvm.tirx")
DEVICE = tvm.cpu()


def built(shapes: Mapping[str, Sequence[Any]], dtype: str, operator: Callable[..., Any]) -> Any:
    """Build a module of one operator, for any number of rows."""
    builder = relax.BlockBuilder()
    rows = tir.Var("rows", "int64")
    inputs = [
        relax.Var(name, relax.TensorType([rows if n == "rows" else n for n in shape], dtype))
        for name, shape in shapes.items()
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            y = builder.emit_output(operator(*inputs))
        builder.emit_func_output(y)
    return relax.VirtualMachine(tvm.compile(builder.get(), target="llvm"), DEVICE)


@cache
def machine(centred: bool, size: int, dtype: str, eps: float) -> Any:
    """Build a module of one norm."""
    shapes: dict[str, list[Any]] = {"x": ["rows", size], "gamma": [size]}
    if centred:
        shapes["beta"] = [size]
    operator = relax.op.nn.layer_norm if centred else relax.op.nn.rms_norm
    return built(shapes, dtype, partial(operator, axes=[-1], epsilon=eps))


def run(centred: bool, x: Array, parameters: list[Array], eps: float) -> Array:
    """Run a norm."""
    tensors = [tvm.runtime.tensor(each, DEVICE) for each in (x, *parameters)]
    y: Array = machine(centred, x.shape[1], x.dtype.name, eps)["main"](*tensors).numpy()
    return y


def layer_norm(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """Run relax.op.nn.layer_norm."""
    return run(True, x, [gamma, beta], eps)


def rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    """Run relax.op.nn.rms_norm."""
    return run(False, x, [gamma], eps)
