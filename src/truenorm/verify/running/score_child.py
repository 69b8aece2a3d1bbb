"""Call a kernel that is scored. This file needs PyTorch and runner.py, nothing else.

A process that has imported PyTorch forks for each kernel. The fork maps the inputs of a call,
calls the kernel, and copies the results: the other process believes nothing but their bytes.
"""

import contextlib
import ctypes
import importlib
import json
import mmap
import os
import resource
import select
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import runner  # type: ignore[import-not-found]

torch: Any = None
LINE, MOST_OPERATORS = 64, 1000
NAMESPACES = 0x10000000 | 0x20000000 | 0x40000000 | 0x08000000
"""For ``unshare``: users, processes, the network, and memory shared by name."""
DEATH_SIGNAL, SUBREAPER = 1, 36
NEEDED = "torch.utils._python_dispatch", "torch.fx.experimental.symbolic_shapes"
"""Modules of PyTorch that calls import, which takes a second."""
LIMITS = {"RLIMIT_FSIZE": 2**30, "RLIMIT_CORE": 0}
LIMITS_ON_A_CPU = {"RLIMIT_AS": 12 * 2**30}


class Kernel(runner.Runner):  # type: ignore[misc]
    """Calls a kernel with inputs in shared memory."""

    def __init__(self, order: Any, area: mmap.mmap) -> None:
        super().__init__(SimpleNamespace(**order["options"]), order["manifest"])
        self.area, self.free = area, 0
        if order["gradients"] and not self.explicit and self.form in ("functional", "module"):
            self.autograd = self.is_differentiable()

    def tensor(self, name: str, entry: list[Any]) -> Any:
        """Return an input of the call in the shared memory, or a copy without a name."""
        kind, shape, strides, start, at, count = entry
        dtype = getattr(torch, kind)
        flat = torch.frombuffer(self.area, dtype=dtype, count=count, offset=at)
        tensor = torch.empty(0, dtype=dtype).set_(flat.untyped_storage(), start, shape, strides)
        if not name:
            return tensor.to(self.device).clone()
        return tensor if self.device.type == "cpu" else tensor.to(self.device)

    def keep(self, results: Any, k: int, _: int) -> None:
        """Copy results to the shared memory."""
        for output, each in results.items():
            name = "later " * k + output
            if each is None:
                self.kept[name] = None
                continue
            kind, shape, content = runner.read(each)
            start, self.free = self.free, -(-(self.free + len(content)) // LINE) * LINE
            if self.free > len(self.area):
                raise MemoryError(f"{name} of shape {shape} is too large")
            self.area[start : start + len(content)] = content
            self.kept[name] = [kind, shape, start]

    def answer(self, request: Any) -> Any:
        """Make a call, and return where its results are."""
        step, self.free = request["step"], request["free"]
        self.given, self.kept = dict[str, Any](), dict[str, Any]()
        self.note = {"failure": "", "left_out": ""}
        operators = operators_mode() if request["list"] else contextlib.nullcontext()
        try:
            with operators:
                self.passes(step, 0)
                self.write_back(step)
        except BaseException as error:
            self.note["failure"] = f"raised {runner.describe(error)}"
        names = getattr(operators, "names", ())
        return {"arrays": self.kept, "operators": [*names][:MOST_OPERATORS], **self.note}

    def write_back(self, step: Any) -> None:
        """Copy inputs on another device to where they came from: there they are compared."""
        if self.device.type != "cpu":
            for name, each in self.given.items():
                _, shape, strides, start, at, count = step["tensors"][name]
                flat = torch.frombuffer(self.area, dtype=each.dtype, count=count, offset=at)
                flat.as_strided(shape, strides, start).copy_(each.detach())


def operators_mode() -> Any:
    """Return a mode that notes the names of the operators of PyTorch."""
    base: Any = importlib.import_module(NEEDED[0]).TorchDispatchMode

    class Operators(base):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.names = set[str]()

        def __torch_dispatch__(
            self, func: Any, _types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.names.add(str(func))
            return func(*args, **(kwargs or {}))

    return Operators()


def work(order: Any, calls: socket.socket, area: mmap.mmap) -> None:
    """Import the kernel, and answer requests until the other process hangs up."""
    kernel, reply = None, {"of": order["of"]}
    try:
        kernel = Kernel(order, area)
        reply["backward"] = bool(kernel.autograd or kernel.explicit)
    except BaseException as error:
        reply["failure"] = runner.describe(error)
    calls.send(json.dumps(reply).encode())
    while kernel and (message := calls.recv(2**20)):
        request = json.loads(message)
        calls.send(json.dumps({"of": request["of"], **kernel.answer(request)}).encode())


def become_kernel(order: Any, calls: int, memory: int) -> None:
    """Leave the descriptors 3 and 4, limits, and a folder; then work."""
    nothing = os.open(os.devnull, os.O_RDWR)
    kept = [os.dup2(each, 100 + place) for place, each in enumerate((calls, memory))]
    for stream, file in enumerate((nothing, nothing, nothing, *kept)):
        os.dup2(file, stream)
    os.closerange(5, os.sysconf("SC_OPEN_MAX"))
    os.setsid()
    os.chdir(order["folder"])
    limits = LIMITS | (LIMITS_ON_A_CPU if order["options"]["device"] == "cpu" else {})
    for limit, most in limits.items():
        resource.setrlimit(getattr(resource, limit), (most, most))
    ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
    torch.set_num_threads(order["threads"])
    work(order, socket.socket(fileno=3), mmap.mmap(4, 0))


def keep(order: Any, calls: int, memory: int, lifeline: int) -> None:
    """Fork the process of a kernel, and end all that it has started when it or the parent ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    isolated = libc.unshare(NAMESPACES) == 0
    libc.prctl(SUBREAPER, 1)
    process = os.fork()
    if not process:
        with contextlib.suppress(BaseException):
            become_kernel(order, calls, memory)
        os._exit(1)
    os.close(calls)
    os.write(lifeline, b"isolated" if isolated else b"shared")
    select.select([os.pidfd_open(process), lifeline], [], [])
    os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    own = Path(f"/proc/self/task/{os.getpid()}/children")
    while not isolated and (orphans := own.read_text().split()):
        for each in map(int, orphans):
            os.kill(each, signal.SIGKILL)
            os.waitpid(each, 0)
    with contextlib.suppress(OSError):  # the parent has ended
        os.write(lifeline, str(os.waitstatus_to_exitcode(status)).encode())


def main() -> None:
    """Fork for each order that arrives, with its three descriptors."""
    global torch
    orders = socket.socket(fileno=int(sys.argv[1]))
    try:
        torch = runner.import_torch()
        for name in NEEDED:
            importlib.import_module(name)
        with operators_mode():
            torch.zeros(1).add(1)  # the first time it imports modules for a second
    except Exception as error:
        orders.send(runner.describe(error).encode())
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    orders.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(orders, 2**20, 3)
        if not message:
            return
        if not os.fork():
            with contextlib.suppress(BaseException):
                orders.close()
                keep(json.loads(message), *descriptors)
            os._exit(0)
        for each in descriptors:
            os.close(each)


if __name__ == "__main__":
    main()
