"""Each peer's layer normalization, or RMSNorm, called the way that is fastest for it.

Runs in the peer's environment. What a peer needs besides the arrays is made here, untimed: its own
kind of array over the same numbers, a compiled function, and for backward what forward kept.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peer.inputs import EPS, EXISTING, NEW, Array, Contestant, Inputs

__all__ = ["IMPLEMENTATIONS"]


def _plain(returned: Any) -> list[Array]:
    return [np.asarray(each) for each in returned if each is not None]


def _passes(module: str, given: Inputs, of_layer_norm: str = "") -> tuple[Any, Any]:
    """Return forward and backward by the names they have in a module of truenorm."""
    library, prefix = import_module(module), of_layer_norm if given.centred else "rms_norm_"
    return getattr(library, f"{prefix}forward"), getattr(library, f"{prefix}backward")


def textbook(given: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float32."""
    del threads  # NumPy uses one for this
    of_forward, of_backward = _passes("truenorm.textbook", given)
    forward = partial(of_forward, *given.forward, EPS)
    _, saved = forward()
    backward = partial(of_backward, given.dy, saved)
    return [
        Contestant("textbook NumPy", "forward", NEW, forward, lambda got: [got[0]]),
        Contestant("textbook NumPy", "backward", NEW, backward, _plain),
    ]


def textbook64(given: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float64; to widen and to cast is part of what it costs."""
    del threads
    of_forward, of_backward = _passes("truenorm.textbook", given)

    def forward() -> tuple[Array, Any]:
        y, saved = of_forward(*(each.astype(np.float64) for each in given.forward), EPS)
        return y.astype(np.float32), saved

    _, saved = forward()

    def backward() -> list[Array]:
        gradients = of_backward(given.dy.astype(np.float64), saved)
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
    if given.centred:
        forward = partial(library.native_layer_norm, x, size, gamma, beta, EPS)
        _, mean, rstd = forward()
        kernel = library.ops.aten.native_layer_norm_backward.default
        backward = partial(kernel, dy, x, size, mean, rstd, gamma, beta, [True, True, True])
    else:
        forward, backward = _torch_rms_norm(library, x, gamma, dy)
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


def _torch_rms_norm(library: Any, x: Any, gamma: Any, dy: Any) -> tuple[Any, Any]:
    """Return forward without a tape, and backward along one that is written once, untimed."""
    rms_norm, size = library.nn.functional.rms_norm, [x.shape[-1]]
    leaves = [each.clone().requires_grad_() for each in (x, gamma)]
    with library.enable_grad():
        y = rms_norm(leaves[0], size, leaves[1], EPS)
    return (
        lambda: [rms_norm(x, size, gamma, EPS)],
        partial(library.autograd.grad, y, leaves, dy, retain_graph=True),
    )


def _tensor(library: Any, array: Array) -> Any:
    """Return an array as a tensor; NumPy's bfloat16 is not one that PyTorch knows."""
    if array.dtype.name != "bfloat16":
        return library.from_numpy(array)
    return library.from_numpy(array.view(np.int16)).view(library.bfloat16)


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
    of_forward, of_backward = _passes("truenorm", given, "layer_norm_")
    out = np.empty_like(given.x)
    contestants = []
    for rounding in ("correct", "fast"):
        for into in (EXISTING, NEW):
            where = {"threads": threads, "out": out if into == EXISTING else None}
            name = f"truenorm {rounding}{', out=' if into == EXISTING else ''}"
            forward = partial(of_forward, *given.forward, eps=EPS, rounding=rounding, **where)
            _, saved = forward()
            backward = partial(of_backward, given.dy, saved, **where)
            contestants += [
                Contestant(name, "forward", into, forward, lambda got: [got[0]]),
                Contestant(name, "backward", into, backward, _plain),
            ]
    return contestants


IMPLEMENTATIONS: dict[str, Callable[[Inputs, int], list[Contestant]]] = {
    each.__name__: each
    for each in (textbook, textbook64, thinc, torch, jax, onnxruntime, truenorm)
}
