"""``python -m benchmarks.peers_worker PEER THREADS``: time one package's norm in its environment.

The process reads requests from its input and answers each with a line, both JSON. Between requests
it sleeps, so that it takes nothing from the peer that is timed. It imports nothing of the
project but truenorm, where that is the peer.
"""

import gc
import json
import os
import platform
import statistics
import sys
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

EPS = 1e-5
Array = NDArray[Any]
NEW, EXISTING = "new array", "existing array"


@dataclass(frozen=True)
class Inputs:
    """The arguments of one forward and one backward pass, equal in every process."""

    x: Array
    gamma: Array
    beta: Array
    dy: Array
    centred: bool = True  # False: RMSNorm, which has no beta

    @classmethod
    def normal(
        cls, shape: tuple[int, ...], seed: int, dtype: str, operation: str = "layer_norm"
    ) -> "Inputs":
        """Draw normal data."""
        random = np.random.default_rng(seed)
        sizes = (shape, shape[-1:], shape[-1:], shape)
        drawn = (random.standard_normal(size, dtype=np.float32) for size in sizes)
        x, gamma, beta, dy = (each.astype(_dtype(dtype)) for each in drawn)
        return cls(x, gamma, beta, dy, centred=operation == "layer_norm")

    @property
    def forward(self) -> tuple[Array, ...]:
        """The arguments of a forward pass."""
        return (self.x, self.gamma, self.beta) if self.centred else (self.x, self.gamma)

    def rows(self, array: Array) -> Array:
        """Return an array as rows, for libraries that take nothing else."""
        return array.reshape(-1, array.shape[-1])


@dataclass(frozen=True)
class Contestant:
    """One way to call a peer, in one direction.

    `run` is timed. `results` converts what it returns to NumPy arrays, to be checked: y, or dx,
    dgamma and dbeta.
    """

    name: str
    direction: str
    writes_to: str
    run: Callable[[], Any]
    results: Callable[[Any], list[Array]]


def _dtype(name: str) -> Any:
    """Return a dtype by name, bfloat16 included."""
    return import_module("ml_dtypes").bfloat16 if name == "bfloat16" else np.dtype(name)


def _plain(returned: Any) -> list[Array]:
    return [np.asarray(each) for each in returned if each is not None]


def _passes(module: str, inputs: Inputs, of_layer_norm: str = "") -> tuple[Any, Any]:
    """Return forward and backward of a module of truenorm."""
    library, prefix = import_module(module), of_layer_norm if inputs.centred else "rms_norm_"
    return getattr(library, f"{prefix}forward"), getattr(library, f"{prefix}backward")


def textbook(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float32."""
    del threads  # NumPy uses one for this
    of_forward, of_backward = _passes("truenorm.textbook", inputs)
    forward = partial(of_forward, *inputs.forward, EPS)
    _, saved = forward()
    backward = partial(of_backward, inputs.dy, saved)
    return [
        Contestant("textbook NumPy", "forward", NEW, forward, lambda got: [got[0]]),
        Contestant("textbook NumPy", "backward", NEW, backward, _plain),
    ]


def textbook64(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return the textbook form in float64; the casts are part of its cost."""
    del threads
    of_forward, of_backward = _passes("truenorm.textbook", inputs)

    def forward() -> tuple[Array, Any]:
        y, saved = of_forward(*(each.astype(np.float64) for each in inputs.forward), EPS)
        return y.astype(np.float32), saved

    _, saved = forward()

    def backward() -> list[Array]:
        gradients = of_backward(inputs.dy.astype(np.float64), saved)
        return [each.astype(np.float32) for each in gradients]

    name = "textbook in float64, then cast"
    return [
        Contestant(name, "forward", NEW, forward, lambda got: [got[0]]),
        Contestant(name, "backward", NEW, backward, _plain),
    ]


def thinc(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return thinc's layer. Its eps is 1e-8 and cannot be chosen."""
    del threads  # its layer is NumPy too
    api: Any = import_module("thinc.api")
    model = api.LayerNorm(nI=inputs.x.shape[-1])
    model.initialize()
    model.set_param("G", inputs.gamma)
    model.set_param("b", inputs.beta)
    forward = partial(model, inputs.rows(inputs.x), is_train=True)
    _, backprop = forward()
    backward = partial(backprop, inputs.rows(inputs.dy))

    def gradients(_: Any) -> list[Array]:
        # backprop adds to the gradients of the model: start from zero.
        for name in ("G", "b"):
            model.set_grad(name, np.zeros_like(inputs.gamma))
        return [backward(), model.get_grad("G"), model.get_grad("b")]

    return [
        Contestant("thinc", "forward", NEW, forward, lambda got: [got[0]]),
        Contestant("thinc", "backward", NEW, backward, gradients),
    ]


def torch(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return PyTorch's kernels without autograd.

    Its variants with ``out=`` compute into new arrays and copy.
    """
    library: Any = import_module("torch")
    library.set_num_threads(threads)
    library.set_grad_enabled(False)
    arrays = (inputs.x, inputs.gamma, inputs.beta, inputs.dy)
    x, gamma, beta, dy = (_tensor(library, each) for each in arrays)
    size = [x.shape[-1]]
    if inputs.centred:
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


def jax(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return JAX, compiled: forward, backward from saved values, and both in one."""
    del threads  # it starts one for each usable core
    library: Any = import_module("jax")
    numpy: Any = import_module("jax.numpy")

    def layer_norm(x: Any, gamma: Any, beta: Any) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        var = (centred * centred).mean(axis=-1, keepdims=True)
        return gamma * (centred * library.lax.rsqrt(var + EPS)) + beta

    arguments = tuple(numpy.asarray(each) for each in (inputs.x, inputs.gamma, inputs.beta))
    dy = numpy.asarray(inputs.dy)
    forward = library.jit(layer_norm)
    _, pullback = library.jit(lambda *args: library.vjp(layer_norm, *args))(*arguments)
    backward = library.jit(lambda pullback, dy: pullback(dy))
    gradients = library.jit(lambda dy, *args: library.vjp(layer_norm, *args)[1](dy))

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


def onnxruntime(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return ONNX Runtime, which has no backward; input and output are bound once."""
    library: Any = import_module("onnxruntime")
    options = library.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = library.InferenceSession(
        _onnx_model(inputs), options, providers=["CPUExecutionProvider"]
    )
    y = np.empty_like(inputs.x)
    binding = session.io_binding()
    binding.bind_cpu_input("x", inputs.x)
    binding.bind_ortvalue_output("y", library.OrtValue.ortvalue_from_numpy(y))
    run = partial(session.run_with_iobinding, binding)
    return [Contestant("ONNX Runtime", "forward", EXISTING, run, lambda _: [y])]


def _onnx_model(inputs: Inputs) -> bytes:
    """Return a model of one node, with gamma and beta as its weights."""
    onnx: Any = import_module("onnx")
    helper, tensors = onnx.helper, onnx.numpy_helper
    kind, shape = onnx.TensorProto.FLOAT, inputs.x.shape
    node = helper.make_node(
        "LayerNormalization", ["x", "gamma", "beta"], ["y"], axis=-1, epsilon=EPS
    )
    graph = helper.make_graph(
        [node],
        "layer_norm",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, shape)],
        [tensors.from_array(inputs.gamma, "gamma"), tensors.from_array(inputs.beta, "beta")],
    )
    # Opset 17 brought LayerNormalization; old numbers are what every runtime reads.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    serialized: bytes = model.SerializeToString()
    return serialized


def truenorm(inputs: Inputs, threads: int) -> list[Contestant]:
    """Return truenorm in both modes, each with ``out=`` and without."""
    of_forward, of_backward = _passes("truenorm", inputs, "layer_norm_")
    out = np.empty_like(inputs.x)
    contestants = []
    for rounding in ("correct", "fast"):
        for into in (EXISTING, NEW):
            where = {"threads": threads, "out": out if into == EXISTING else None}
            name = f"truenorm {rounding}{', out=' if into == EXISTING else ''}"
            forward = partial(of_forward, *inputs.forward, eps=EPS, rounding=rounding, **where)
            _, saved = forward()
            backward = partial(of_backward, inputs.dy, saved, **where)
            contestants += [
                Contestant(name, "forward", into, forward, lambda got: [got[0]]),
                Contestant(name, "backward", into, backward, _plain),
            ]
    return contestants


IMPLEMENTATIONS: dict[str, Callable[[Inputs, int], list[Contestant]]] = {
    each.__name__: each
    for each in (textbook, textbook64, thinc, torch, jax, onnxruntime, truenorm)
}


# Loose: they tell a norm from something else. In bfloat16, dgamma of PyTorch over 8192 rows is off
# by a tenth.
TOLERANCES = {"float64": 1e-3, "float32": 1e-3, "float16": 5e-2, "bfloat16": 3e-1}
BLOCK = 2**20  # elements checked at a time: float64 copies of all would take gigabytes
SHORTEST = 100e-6  # seconds that the clock measures reliably
FIRST_CALLS, FIRST_SECONDS = 100, 2.0


class Worker:
    """The requests that a process answers."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.contestants: list[Contestant] = []

    def versions(self, packages: list[str], truenorm: bool) -> dict[str, str]:
        """Return the versions of Python and of packages."""
        answer = {"python": platform.python_version()}
        answer |= {name: version(name) for name in packages}
        if truenorm:
            library: Any = import_module("truenorm")
            backend = next(status.name for status in library.backends() if status.usable)
            answer |= {"truenorm": library.__version__, "backend": backend}
        return answer

    def prepare(self, shape: list[int], seed: int, dtype: str, operation: str) -> dict[str, Any]:
        """Make the arrays and all contestants, and check their results."""
        self.contestants = []  # frees the arrays of the last shape
        inputs = Inputs.normal(tuple(shape), seed, dtype, operation)
        self.contestants = IMPLEMENTATIONS[self.peer](inputs, self.threads)
        answers = expected(inputs)
        described = []
        for each in self.contestants:
            check(each, answers[each.direction], TOLERANCES[dtype])  # the first call
            described.append(
                {
                    "name": each.name,
                    "direction": each.direction,
                    "writes_to": each.writes_to,
                    "first_calls": first_calls(each.run),
                }
            )
        return {
            "checksum": zlib.crc32(inputs.x.tobytes()) ^ zlib.crc32(inputs.dy.tobytes()),
            "contestants": described,
        }

    def time(self, which: int, seconds: float) -> dict[str, float]:
        """Call one contestant repeatedly for about `seconds`."""
        taken = timed(self.contestants[which].run, seconds)
        return {
            "p50": statistics.median(taken),
            "mean": statistics.fmean(taken),
            "min": min(taken),
            "samples": len(taken),
        }


def first_calls(run: Callable[[], object]) -> list[float]:
    """Return the times of the first 100 calls after the first, fewer if they take seconds."""
    taken: list[float] = []
    while len(taken) < FIRST_CALLS and sum(taken) < FIRST_SECONDS:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


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
    """Return y and the gradients, computed in float64 by the formulas of the textbook."""
    x, dy = (inputs.rows(each).astype(np.float32) for each in (inputs.x, inputs.dy))
    y, dx = np.empty_like(x), np.empty_like(x)
    dgamma, dbeta = np.zeros((2, x.shape[1]))
    gamma, beta = inputs.gamma.astype(np.float64), inputs.beta.astype(np.float64)
    step = max(1, BLOCK // x.shape[1])
    for start in range(0, len(x), step):
        block = slice(start, start + step)
        wide_dy = dy[block].astype(np.float64)
        centred = x[block].astype(np.float64)
        if inputs.centred:
            centred -= centred.mean(axis=1, keepdims=True)
        rstd = 1 / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + EPS)
        xhat = centred * rstd
        y[block] = gamma * xhat + (beta if inputs.centred else 0)
        g = gamma * wide_dy
        along = (g * xhat).mean(axis=1, keepdims=True)
        mean = g.mean(axis=1, keepdims=True) if inputs.centred else 0
        dx[block] = rstd * (g - mean - xhat * along)
        dgamma += (wide_dy * xhat).sum(axis=0)
        dbeta += wide_dy.sum(axis=0)
    gradients = [dx, dgamma.astype(np.float32), dbeta.astype(np.float32)]
    return {"forward": [y], "backward": gradients if inputs.centred else gradients[:2]}


def check(contestant: Contestant, answers: list[Array], tolerance: float) -> None:
    """Raise ArithmeticError if a contestant computes something else."""
    for got, want in zip(contestant.results(contestant.run()), answers, strict=True):
        error = np.abs(got.reshape(want.shape).astype(np.float32) - want).max()
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
