"""``python -m benchmarks.peers_worker PEER THREADS``: time one package's norm in its environment.

The process reads requests from its input and answers each with a line, both JSON. Between requests
it sleeps, so that it takes nothing from the peer that is timed.
"""

import gc
import json
import os
import statistics
import sys
import time
import traceback
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

EPS = 1e-5
Array = NDArray[Any]
NEW, EXISTING = "new array", "existing array"


class Inputs(NamedTuple):
    """The arguments of one forward and one backward pass, equal in every process."""

    x: Array
    gamma: Array
    beta: Array
    dy: Array
    centred: bool  # False: RMSNorm, which has no beta

    @property
    def forward(self) -> tuple[Array, ...]:
        """The arguments of a forward pass."""
        return (self.x, self.gamma, self.beta) if self.centred else (self.x, self.gamma)

    def passes(self, module: str, of_layer_norm: str = "") -> tuple[Any, Any]:
        """Return forward and backward of a module of truenorm."""
        library, prefix = import_module(module), of_layer_norm if self.centred else "rms_norm_"
        return getattr(library, f"{prefix}forward"), getattr(library, f"{prefix}backward")


def draw(shape: tuple[int, ...], dtype: str, operation: str) -> Inputs:
    """Draw normal data."""
    random = np.random.default_rng(0)
    sizes = (shape, shape[-1:], shape[-1:], shape)
    drawn = (random.standard_normal(size, dtype=np.float32) for size in sizes)
    kind = import_module("ml_dtypes").bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x, gamma, beta, dy = (each.astype(kind) for each in drawn)
    return Inputs(x, gamma, beta, dy, operation == "layer_norm")


class Contestant(NamedTuple):
    """One way to call a peer, in one direction.

    `run` is timed. `results` converts what it returns to NumPy arrays, to be checked: y, or dx,
    dgamma and dbeta.
    """

    name: str
    direction: str
    writes_to: str
    run: Callable[[], Any]
    results: Callable[[Any], list[Array]]


Contestants = Iterator[Contestant]


def _plain(returned: Any) -> list[Array]:
    return [np.asarray(each) for each in returned if each is not None]


def _forward(name: str, run: Callable[[], Any], writes_to: str = NEW) -> Contestant:
    """Return a forward pass that returns y and what it saves."""
    return Contestant(name, "forward", writes_to, run, lambda returned: _plain(returned[:1]))


def _backward(name: str, run: Callable[[], Any], writes_to: str = NEW) -> Contestant:
    return Contestant(name, "backward", writes_to, run, _plain)


def textbook(inputs: Inputs, _: int) -> Contestants:
    """Yield the textbook form in the type of x; NumPy uses one thread for it."""
    of_forward, of_backward = inputs.passes("truenorm.textbook")
    forward = partial(of_forward, *inputs.forward, EPS)
    yield _forward("textbook NumPy", forward)
    yield _backward("textbook NumPy", partial(of_backward, inputs.dy, forward()[1]))


def textbook64(inputs: Inputs, _: int) -> Contestants:
    """Yield the textbook form in float64; the casts are part of its cost."""
    of_forward, of_backward = inputs.passes("truenorm.textbook")

    def forward() -> tuple[Array, Any]:
        y, saved = of_forward(*(each.astype(np.float64) for each in inputs.forward), EPS)
        return y.astype(np.float32), saved

    saved = forward()[1]

    def backward() -> list[Array]:
        gradients = of_backward(inputs.dy.astype(np.float64), saved)
        return [each.astype(np.float32) for each in gradients]

    yield _forward("textbook in float64, then cast", forward)
    yield _backward("textbook in float64, then cast", backward)


def thinc(inputs: Inputs, _: int) -> Contestants:
    """Yield thinc's layer, which is NumPy. Its eps is 1e-8 and cannot be chosen."""
    api: Any = import_module("thinc.api")
    model = api.LayerNorm(nI=inputs.x.shape[-1])
    model.initialize()
    model.set_param("G", inputs.gamma)
    model.set_param("b", inputs.beta)
    rows, dy = (each.reshape(-1, each.shape[-1]) for each in (inputs.x, inputs.dy))
    forward = partial(model, rows, is_train=True)
    _, backprop = forward()
    backward = partial(backprop, dy)

    def gradients(_: Any) -> list[Array]:
        # backprop adds to the gradients of the model: start from zero.
        for name in ("G", "b"):
            model.set_grad(name, np.zeros_like(inputs.gamma))
        return [backward(), model.get_grad("G"), model.get_grad("b")]

    yield _forward("thinc", forward)
    yield _backward("thinc", backward)._replace(results=gradients)


def torch(inputs: Inputs, threads: int) -> Contestants:
    """Yield PyTorch's kernels without autograd.

    Its variants with ``out=`` compute into new arrays and copy.
    """
    library: Any = import_module("torch")
    library.set_num_threads(threads)
    library.set_grad_enabled(False)
    x, gamma, beta, dy = (_tensor(library, each) for each in inputs[:4])
    size = [x.shape[-1]]
    if inputs.centred:
        forward = partial(library.native_layer_norm, x, size, gamma, beta, EPS)
        _, mean, rstd = forward()
        kernel = library.ops.aten.native_layer_norm_backward.default
        backward = partial(kernel, dy, x, size, mean, rstd, gamma, beta, [True, True, True])
    else:
        forward, backward = _torch_rms_norm(library, x, gamma, dy)
    # NumPy has no bfloat16: results are checked in float32.
    yield _forward("PyTorch", forward)._replace(results=lambda got: [got[0].float().numpy()])
    yield _backward("PyTorch", backward)._replace(
        results=lambda got: [each.float().numpy() for each in got]
    )


def _torch_rms_norm(library: Any, x: Any, gamma: Any, dy: Any) -> tuple[Any, Any]:
    """Return forward without autograd, and backward along a graph that is recorded once."""
    rms_norm, size = library.nn.functional.rms_norm, [x.shape[-1]]
    leaves = [each.clone().requires_grad_() for each in (x, gamma)]
    with library.enable_grad():
        y = rms_norm(leaves[0], size, leaves[1], EPS)
    return (
        lambda: [rms_norm(x, size, gamma, EPS)],
        partial(library.autograd.grad, y, leaves, dy, retain_graph=True),
    )


def _tensor(library: Any, array: Array) -> Any:
    """Return an array as a tensor; PyTorch does not know NumPy's bfloat16."""
    if array.dtype.name != "bfloat16":
        return library.from_numpy(array)
    return library.from_numpy(array.view(np.int16)).view(library.bfloat16)


def jax(inputs: Inputs, _: int) -> Contestants:
    """Yield JAX, compiled: forward, backward from saved values, and both in one.

    It starts a thread for each usable core.
    """
    library: Any = import_module("jax")

    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        var = (centred * centred).mean(axis=-1, keepdims=True)
        return gamma * (centred * library.lax.rsqrt(var + EPS)) + beta

    *arguments, dy = map(library.numpy.asarray, inputs[:4])
    forward = library.jit(layer_norm)
    _, pullback = library.jit(lambda *args: library.vjp(layer_norm, *args))(*arguments)
    backward = library.jit(lambda pullback, dy: pullback(dy))
    gradients = library.jit(lambda dy, *args: library.vjp(layer_norm, *args)[1](dy))
    wait = library.block_until_ready  # JAX returns before it is done
    yield _forward("JAX", lambda: [wait(forward(*arguments))])
    yield _backward("JAX", lambda: wait(backward(pullback, dy)))
    yield _backward("JAX, forward included", lambda: wait(gradients(dy, *arguments)))


def onnxruntime(inputs: Inputs, threads: int) -> Contestants:
    """Yield ONNX Runtime, which has no backward; input and output are bound once."""
    library: Any = import_module("onnxruntime")
    onnx: Any = import_module("onnx")
    helper, kind, shape = onnx.helper, onnx.TensorProto.FLOAT, inputs.x.shape
    names = ["x", "gamma", "beta"]
    graph = helper.make_graph(
        [helper.make_node("LayerNormalization", names, ["y"], axis=-1, epsilon=EPS)],
        "layer_norm",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [
            onnx.numpy_helper.from_array(each, n)
            for each, n in zip(inputs[1:3], names[1:], strict=True)
        ],
    )
    # Opset 17 brought LayerNormalization; old numbers are what every runtime reads.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = library.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = library.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    y = np.empty_like(inputs.x)
    binding = session.io_binding()
    binding.bind_cpu_input("x", inputs.x)
    binding.bind_ortvalue_output("y", library.OrtValue.ortvalue_from_numpy(y))
    run = partial(session.run_with_iobinding, binding)
    yield _forward("ONNX Runtime", run, EXISTING)._replace(results=lambda _: [y])


def truenorm(inputs: Inputs, threads: int) -> Contestants:
    """Yield truenorm in both modes, each with ``out=`` and without."""
    of_forward, of_backward = inputs.passes("truenorm", "layer_norm_")
    out = np.empty_like(inputs.x)
    for rounding in ("correct", "fast"):
        for into, array, end in ((EXISTING, out, ", out="), (NEW, None, "")):
            where = {"threads": threads, "out": array}
            forward = partial(of_forward, *inputs.forward, eps=EPS, rounding=rounding, **where)
            backward = partial(of_backward, inputs.dy, forward()[1], **where)
            yield _forward(f"truenorm {rounding}{end}", forward, into)
            yield _backward(f"truenorm {rounding}{end}", backward, into)


IMPLEMENTATIONS: dict[str, Callable[[Inputs, int], Contestants]] = {
    each.__name__: each
    for each in (textbook, textbook64, thinc, torch, jax, onnxruntime, truenorm)
}
# Loose: they tell a norm from something else. In bfloat16, dgamma of PyTorch over 8192 rows is off
# by a tenth.
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}
SHORTEST = 100e-6  # seconds that the clock measures reliably


class Worker:
    """The requests that a process answers."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.contestants: list[Contestant] = []

    def prepare(self, shape: list[int], dtype: str, operation: str) -> dict[str, Any]:
        """Make the arrays and all contestants, and check their results."""
        self.contestants = []  # frees the arrays of the last shape
        inputs = draw(tuple(shape), dtype, operation)
        self.contestants = list(IMPLEMENTATIONS[self.peer](inputs, self.threads))
        answers = expected(inputs)
        for each in self.contestants:
            check(each, answers[each.direction], TOLERANCES[dtype])
        return {
            "checksum": zlib.crc32(inputs.x.tobytes()) ^ zlib.crc32(inputs.dy.tobytes()),
            "contestants": [each[:3] for each in self.contestants],
        }

    def time(self, which: int, seconds: float) -> dict[str, float]:
        """Call one contestant repeatedly for about `seconds`."""
        taken = timed(self.contestants[which].run, seconds)
        return {
            "p10": sorted(taken)[len(taken) // 10],
            "p50": statistics.median(taken),
            "mean": statistics.fmean(taken),
            "min": min(taken),
            "samples": len(taken),
        }


def timed(run: Callable[[], object], seconds: float) -> list[float]:
    """Return the times of calls; of short ones, the means of as many as the clock needs."""
    run()  # fills the caches
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    if once >= seconds:
        return [once]
    calls = range(max(1, round(SHORTEST / once)))
    taken = []
    gc.disable()
    try:
        end = time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            for _ in calls:
                run()
            taken.append((time.perf_counter() - start) / len(calls))
    finally:
        gc.enable()
    return taken


def expected(inputs: Inputs) -> dict[str, list[Array]]:
    """Return y and the gradients by the textbook in float64; its temporaries are freed."""
    forward, backward = inputs.passes("truenorm.textbook")
    y, saved = forward(*(each.astype(np.float64) for each in inputs.forward), EPS)
    gradients = backward(inputs.dy.astype(np.float64), saved)
    return {"forward": [y], "backward": list(gradients)}


def check(contestant: Contestant, answers: list[Array], tolerance: float) -> None:
    """Raise ArithmeticError if a contestant computes something else."""
    for got, want in zip(contestant.results(contestant.run()), answers, strict=True):
        error = np.abs(got.reshape(want.shape) - want).max()
        if not error <= tolerance * max(1.0, float(np.abs(want).max())):
            raise ArithmeticError(
                f"{contestant.name}, {contestant.direction}: off by {error:.3g} in an array of "
                f"shape {got.shape}"
            )


def main() -> int:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    worker = Worker(sys.argv[1], int(sys.argv[2]))
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": getattr(worker, request.pop("do"))(**request)}
        except Exception:  # a peer may fail in any way; the command reports it
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
