"""TVM: relax.op.nn compiled by LLVM, for any number of rows."""

from functools import cache
from importlib import import_module
from typing import Any

from benchmarks.world.subjects.onnx_node import Array

tvm: Any = import_module("tvm")
relax: Any = import_module("tvm.relax")
tir: Any = import_module("tvm.tirx")
DEVICE = tvm.cpu()


@cache
def machine(centred: bool, size: int, dtype: str, eps: float) -> Any:
    """Build a module of one norm."""
    builder = relax.BlockBuilder()
    rows = tir.Var("rows", "int64")
    kinds: list[list[Any]] = [[rows, size], [size], [size]]
    inputs = [
        relax.Var(name, relax.TensorType(kind, dtype))
        for name, kind in zip(("x", "gamma", "beta"), kinds[: 3 if centred else 2], strict=False)
    ]
    operator = relax.op.nn.layer_norm if centred else relax.op.nn.rms_norm
    with builder.function("main", inputs):
        with builder.dataflow():
            y = builder.emit_output(operator(*inputs, axes=[-1], epsilon=eps))
        builder.emit_func_output(y)
    built = tvm.compile(builder.get(), target="llvm")
    return relax.VirtualMachine(built, DEVICE)


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
