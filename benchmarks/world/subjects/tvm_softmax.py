"""TVM: relax.op.nn.softmax and log_softmax compiled by LLVM, for any number of rows."""

from functools import cache, partial
from typing import Any

from benchmarks.world.subjects.onnx_node import Array
from benchmarks.world.subjects.tvm_norms import DEVICE, built, relax, tvm


@cache
def machine(name: str, size: int, dtype: str) -> Any:
    """Build a module of one operator."""
    operator = getattr(relax.op.nn, name)
    return built({"x": ["rows", size]}, dtype, partial(operator, axis=-1))


def run(name: str, x: Array) -> Array:
    """Run an operator on rows."""
    tensor = tvm.runtime.tensor(x, DEVICE)
    y: Array = machine(name, x.shape[1], x.dtype.name)["main"](tensor).numpy()
    return y


def softmax(x: Array) -> Array:
    """Run relax.op.nn.softmax."""
    return run("softmax", x)


def log_softmax(x: Array) -> Array:
    """Run relax.op.nn.log_softmax."""
    return run("log_softmax", x)
