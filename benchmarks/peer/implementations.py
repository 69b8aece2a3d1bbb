"""Each peer's layer normalization, called the way that is fastest for it.

Runs in the peer's environment. What a peer needs besides the arrays is made here, untimed: its own
kind of array over the same numbers, a compiled function, and for backward what forward kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EPS", "IMPLEMENTATIONS", "Array", "Contestant", "Inputs"]

EPS = 1e-5
Array = NDArray[Any]
NEW, EXISTING = "new array", "existing array"


@dataclass(frozen=True)
class Inputs:
    """The arguments of one forward and one backward pass, the same in every process."""

    x: Array
    gamma: Array
    beta: Array
    dy: Array

    @classmethod
    def normal(cls, shape: tuple[int, ...], seed: int, dtype: str) -> "Inputs":
        """Draw normal data."""
        random = np.random.default_rng(seed)
        sizes = (shape, shape[-1:], shape[-1:], shape)
        drawn = (random.standard_normal(size, dtype=np.float32) for size in sizes)
        return cls(*(each.astype(_dtype(dtype)) for each in drawn))

    def rows(self, array: Array) -> Array:
        """Return an array as a table of rows, for those who know nothing else."""
        return array.reshape(-1, array.shape[-1])


@dataclass(frozen=True)
class Contestant:
    """One way to call a peer, in one direction.

    `run` is what is timed. `results` turns what it returns into NumPy arrays, to be checked: y, or
    dx, dgamma and dbeta.
    """

    name: str
    direction: str
    writes_to: str
    run: Callable[[], Any]
    results: Callable[[Any], list[Array]]


def _plain(returned: Any) -> list[Array]:
    return [np.asarray(each) for each in returned]


def textbook(given: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float32."""
    del threads  # NumPy uses one for this
    formulas: Any = import_module("truenorm.textbook")
    forward = partial(formulas.forward, given.x, given.gamma, given.beta, EPS)
    _, saved = forward()
    backward = partial(formulas.backward, given.dy, saved)
    return [
        Contestant("textbook NumPy", "forward", NEW, forward, lambda got: [got[0]]),
        Contestant("textbook NumPy", "backward", NEW, backward, _plain),
    ]


def textbook64(given: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float64; to widen and to cast is part of what it costs."""
    del threads
    formulas: Any = import_module("truenorm.textbook")

    def forward() -> tuple[Array, Any]:
        wide = (each.astype(np.float64) for each in (given.x, given.gamma, given.beta))
        y, saved = formulas.forward(*wide, EPS)
        return y.astype(np.float32), saved

    _, saved = forward()

    def backward() -> list[Array]:
        gradients = formulas.backward(given.dy.astype(np.float64), saved)
        return [each.astype(np.float32) for each in gradients]

    name = "textbook in float64, then cast"
    return [
        Contestant(name, "forward", NEW, forward, lambda got: [got[0]]),
        Contestant(name, "backward", NEW, backward, _plain),
    ]


def thinc(given: Inputs, threads: int) -> list[Contestant]:
    """Return thinc's layer. Its eps is 1e-8 and cannot be chosen."""
    del threads  # its layer is NumPy too
    api: Any = import_module("thinc.api")
    model = api.LayerNorm(nI=given.x.shape[-1])
    model.initialize()
    model.set_param("G", given.gamma)
    model.set_param("b", given.beta)
    forward = partial(model, given.rows(given.x), is_train=True)
    _, backprop = forward()
    backward = partial(backprop, given.rows(given.dy))

    def gradients(_: Any) -> list[Array]:
        # backprop adds to what the model holds, so a sum of several calls is worth nothing.
        for name in ("G", "b"):
            model.set_grad(name, np.zeros_like(given.gamma))
        return [backward(), model.get_grad("G"), model.get_grad("b")]

    return [
        Contestant("thinc", "forward", NEW, forward, lambda got: [got[0]]),
        Contestant("thinc", "backward", NEW, backward, gradients),
    ]


def torch(given: Inputs, threads: int) -> list[Contestant]:
    """Return PyTorch's kernels, without the tape that autograd would write.

    Its variants with ``out=`` compute into new arrays and copy, hence are not worth a line.
    """
    library: Any = import_module("torch")
    library.set_num_threads(threads)
    library.set_grad_enabled(False)
    arrays = (given.x, given.gamma, given.beta, given.dy)
    x, gamma, beta, dy = (_tensor(library, each) for each in arrays)
    size = [x.shape[-1]]
    forward = partial(library.native_layer_norm, x, size, gamma, beta, EPS)
    _, mean, rstd = forward()
    kernel = library.ops.aten.native_layer_norm_backward.default
    backward = partial(kernel, dy, x, size, mean, rstd, gamma, beta, [True, True, True])
    return [
        Contestant("PyTorch", "forward", NEW, forward, lambda got: [got[0].float().numpy()]),
        Contestant(
            "PyTorch",
            "backward",
            NEW,
            backward,
            lambda got: [each.float().numpy() for each in got],
        ),
    ]


def _tensor(library: Any, array: Array) -> Any:
    """Return an array as a tensor; NumPy's bfloat16 is not one that PyTorch knows."""
    if array.dtype.name != "bfloat16":
        return library.from_numpy(array)
    return library.from_numpy(array.view(np.int16)).view(library.bfloat16)


def _dtype(name: str) -> Any:
    """Return a dtype by name, also where NumPy does not know it."""
    return import_module("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)


def jax(given: Inputs, threads: int) -> list[Contestant]:
    """Return JAX, compiled: forward, backward from what forward kept, and both in one."""
    del threads  # it starts one for each usable core
    library: Any = import_module("jax")
    numpy: Any = import_module("jax.numpy")

    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        var = (centred * centred).mean(axis=-1, keepdims=True)
        return gamma * (centred * library.lax.rsqrt(var + EPS)) + beta

    arguments = tuple(numpy.asarray(each) for each in (given.x, given.gamma, given.beta))
    dy = numpy.asarray(given.dy)
    forward = library.jit(layer_norm)
    _, pullback = library.jit(lambda *given: library.vjp(layer_norm, *given))(*arguments)
    backward = library.jit(lambda pullback, dy: pullback(dy))
    gradients = library.jit(lambda dy, *given: library.vjp(layer_norm, *given)[1](dy))

    def contestant(name: str, direction: str, call: Callable[[], Any]) -> Contestant:
        # JAX returns before it is done.
        def run() -> Any:
            return library.block_until_ready(call())

        one = direction == "forward"
        return Contestant(
            name, direction, NEW, run, lambda got: [np.asarray(got)] if one else _plain(got)
        )

    return [
        contestant("JAX", "forward", lambda: forward(*arguments)),
        contestant("JAX", "backward", lambda: backward(pullback, dy)),
        contestant("JAX, forward included", "backward", lambda: gradients(dy, *arguments)),
    ]


def onnxruntime(given: Inputs, threads: int) -> list[Contestant]:
    """Return ONNX Runtime, which has no backward; input and output are bound once."""
    library: Any = import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = library.InferenceSession(
        _onnx_model(given), options, providers=["CPUExecutionProvider"]
    )
    y = np.empty_like(given.x)
    binding = session.io_binding()
    binding.bind_cpu_input("x", given.x)
    binding.bind_ortvalue_output("y", library.OrtValue.ortvalue_from_numpy(y))
    run = partial(session.run_with_iobinding, binding)
    return [Contestant("ONNX Runtime", "forward", EXISTING, run, lambda _: [y])]


def _onnx_model(given: Inputs) -> bytes:
    """Return a model of one node, with gamma and beta as its weights."""
    onnx: Any = import_module("onnx")
    helper, tensors = onnx.helper, onnx.numpy_helper
    kind, shape = onnx.TensorProto.FLOAT, given.x.shape
    node = helper.make_node(
        "LayerNormalization", ["x", "gamma", "beta"], ["y"], axis=-1, epsilon=EPS
    )
    graph = helper.make_graph(
        [node],
        "layer_norm",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [tensors.from_array(given.gamma, "gamma"), tensors.from_array(given.beta, "beta")],
    )
    # Opset 17 brought LayerNormalization; old numbers are what every runtime reads.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


def truenorm(given: Inputs, threads: int) -> list[Contestant]:
    """Return truenorm in both modes, each with ``out=`` and without."""
    library: Any = import_module("truenorm")
    import_module("truenorm.warmup").warm_up([given.x.dtype.name])
    out = np.empty_like(given.x)
    contestants = []
    for rounding in ("correct", "fast"):
        for into in (EXISTING, NEW):
            where = {"threads": threads, "out": out if into == EXISTING else None}
            name = f"truenorm {rounding}{', out=' if into == EXISTING else ''}"
            forward = partial(
                library.layer_norm_forward, given.x, given.gamma, given.beta,
                eps=EPS, rounding=rounding, **where,
            )  # fmt: skip
            _, saved = forward()
            backward = partial(library.layer_norm_backward, given.dy, saved, **where)
            contestants += [
                Contestant(name, "forward", into, forward, lambda got: [got[0]]),
                Contestant(name, "backward", into, backward, _plain),
            ]
    return contestants


IMPLEMENTATIONS: dict[str, Callable[[Inputs, int], list[Contestant]]] = {
    each.__name__: each
    for each in (textbook, textbook64, thinc, torch, jax, onnxruntime, truenorm)
}
