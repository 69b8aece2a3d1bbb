"""Kernels that return zeros and tamper with their process, or end it: they need PyTorch alone."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import torch  # type: ignore[import-not-found]

Tensor = Any


def zeros(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    return 0 * (x * gamma + beta) * eps


def runner_of_process() -> Any:
    """Return the object that makes the calls."""
    return next(each for each in gc.get_objects() if type(each).__name__ == "Kernel")


def forges_inputs(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Change the inputs so that zeros are right."""
    for each in (x, gamma, beta):
        each.detach().zero_()
    return zeros(x, gamma, beta, eps)


def forges_log(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Replace the functions that note what happens, and say that nothing failed."""
    kind = type(runner_of_process())
    right = {"failure": "", "left_out": "it is not judged", "operators": [], "value": 1.0}
    make = kind.answer
    kind.answer = lambda self, request: {"arrays": make(self, request)["arrays"], **right}
    return zeros(x, gamma, beta, eps)


def forges_replies(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Send a reply before that of the process, with places of inputs as results."""
    os.write(3, b'{"of": "", "arrays": {"y": ["float32", [1], 0]}, "failure": ""}')
    return zeros(x, gamma, beta, eps)


def forges_other_results(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Write to the memory of all calls from a thread."""
    area = runner_of_process().area

    def write() -> None:
        for _ in range(1000):
            area[: 2**16] = bytes(2**16)
            time.sleep(0.001)

    threading.Thread(target=write, daemon=True).start()
    return zeros(x, gamma, beta, eps)


def looks_for_answers(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Take any array of the process that has the shape of y and is not an input."""
    inputs = {each.data_ptr() for each in (x, gamma, beta)}
    found = [
        each
        for each in gc.get_objects()
        if isinstance(each, torch.Tensor) and each.shape == x.shape
    ]
    answers = [each for each in found if each.data_ptr() not in inputs and each.dtype == x.dtype]
    return (
        answers[0].detach() + zeros(x, gamma, beta, eps) if answers else zeros(x, gamma, beta, eps)
    )


def cuts_memory(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Make the shared memory too short, which would end a process that reads it."""
    os.ftruncate(4, 0)
    return zeros(x, gamma, beta, eps)


def nests_reply(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    os.write(3, b"[" * 100_000)
    return zeros(x, gamma, beta, eps)


def crashes(*_: Any) -> None:
    ctypes.string_at(1)


def dies_when_listed(x: Tensor, gamma: Tensor, beta: Tensor, eps: float) -> Tensor:
    """End the process in the calls whose operators are listed."""
    if torch._C._len_torch_dispatch_stack():
        os._exit(0)
    return zeros(x, gamma, beta, eps)


def exits(*_: Any) -> None:
    os._exit(0)


def hangs(*_: Any) -> None:
    while True:
        pass


def sleeps(*_: Any) -> None:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(600)


def kills_its_parent(*_: Any) -> None:
    os.kill(os.getppid() or os.getpid(), signal.SIGKILL)


def floods(*_: Any) -> Tensor:
    """Write to all streams, and send replies, until the streams are full."""
    while True:
        for each in (1, 2, 3):
            os.write(each, bytes(2**16))


def takes_memory(*_: Any) -> None:
    found = []
    while True:
        found.append(torch.ones(2**28))


FORGERS = (
    forges_inputs, forges_log, forges_replies, forges_other_results, looks_for_answers,
    cuts_memory, nests_reply, dies_when_listed,
)  # fmt: skip
FATAL = (crashes, exits, hangs, sleeps, kills_its_parent, floods, takes_memory)
