"""Run a kernel that is scored: this process owns the inputs, the results and the answers.

`Kernel` is a runner of the judge. It puts the inputs of one call into shared memory, asks a
process that runs ``score_child.py`` to make the call, and reads the results there. A reply that
cannot be read is a failed call.
"""

import json
import mmap
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from truenorm.verify.calls import TWICE, Call
from truenorm.verify.norms.norm import require_norm
from truenorm.verify.operation import Case
from truenorm.verify.oracle import expected
from truenorm.verify.running.process import (
    MAX_DEATHS,
    describe_exit,
    describe_hang,
    largest_result,
)
from truenorm.verify.running.recorded import completed_record
from truenorm.verify.running.recording import (
    RUNNER,
    Entry,
    PlannedCall,
    describe_call,
    layout_of,
    roles_of,
    source_of,
    trial_of,
)
from truenorm.verify.running.records import CannotRunError, GaveUpError, Record
from truenorm.verify.running.runner import kill_group, start_group
from truenorm.verify.running.schema import dtype_of_result
from truenorm.verify.subject import Subject, in_another_process
from truenorm.verify.types import Array

CHILD, AREA_BYTES, LINE, GAP = "score_child.py", 2**28, 64, 77.0
REPLY_BYTES, START_SECONDS, PYTORCH_SECONDS = 2**18, 60.0, 300.0
FIRST = 4
"""The import and the first call, which may compile, have so many times the limit of a call."""
ENVIRONMENT = {
    "PYTHONSAFEPATH": "",
    "MALLOC_PERTURB_": "193",
    "OMP_WAIT_POLICY": "passive",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""The C library fills new memory with 0x3e and freed memory with 0xc1: no right results."""


class FailedCallError(Exception):
    """A call has no readable reply."""


class Given(NamedTuple):
    """An input in shared memory: its bytes before the call, their place, and an array of them."""

    content: Array
    at: int
    view: Array


class Area:
    """Shared memory of a fixed size: a kernel that cuts it off would end this process."""

    def __init__(self) -> None:
        import fcntl

        self.descriptor = os.memfd_create("calls", os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, AREA_BYTES)
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        self._bytes = np.frombuffer(mmap.mmap(self.descriptor, AREA_BYTES), np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget all arrays."""
        self.free, self.given = 0, list[Given]()

    def close(self) -> None:
        """Release the descriptor; the memory ends with its last array."""
        os.close(self.descriptor)

    def add(
        self,
        array: Array,
        *,
        rows: int | None = None,
        repeats: int = 1,  # noqa: ARG002  (rows that repeat are stored one by one)
        unaligned: bool = False,
    ) -> Entry:
        """Add an array with the memory around it; return type, shape, layout, place and size.

        If `rows` is given, the array that is described has so many rows.
        """
        if rows is not None:
            array = np.resize(array, (rows, *array.shape[1:]))
        strides, start = layout_of(array, unaligned=unaligned)
        count = (
            start + 1 + sum((n - 1) * step for n, step in zip(array.shape, strides, strict=True))
        )
        memory = np.full(max(count, 0) if array.size else 0, GAP, array.dtype)
        view = np.ndarray(
            array.shape,
            array.dtype,
            memory,
            start * array.itemsize,
            [step * array.itemsize for step in strides],
        )
        view[...] = array
        at, content = self._place(memory)
        here = np.ndarray(
            view.shape, view.dtype, self._bytes, at + start * view.itemsize, view.strides
        )
        self.given.append(Given(content, at, here))
        return [array.dtype.name, [*array.shape], strides, start, at, len(memory)]

    def add_bytes(self, kind: str, shape: Sequence[int], byte: int) -> Entry:
        """Add an array of which all bytes are equal."""
        size = prod(shape)
        at, _ = self._place(np.full(size * dtype_of_result(kind).itemsize, byte, np.uint8))
        strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return [kind, [*shape], strides, 0, at, size]

    def _place(self, memory: Array) -> tuple[int, Array]:
        content = memory.reshape(-1).view(np.uint8)
        at, self.free = self.free, -(-(self.free + len(content)) // LINE) * LINE
        if self.free > AREA_BYTES:
            raise FailedCallError(f"has inputs of more than {AREA_BYTES} bytes")
        self._bytes[at : at + len(content)] = content
        return at, content

    def is_changed(self, given: Given) -> bool:
        """Return True if a byte of an input has changed, or one between its elements."""
        now = self._bytes[given.at : given.at + len(given.content)]
        return not np.array_equal(now, given.content)

    def result(self, entry: Any, limit: int) -> Array | None:
        """Return a copy of a result, of which nothing is believed but its bytes."""
        if entry is None:
            return None
        try:
            kind, shape, at = entry
            dtype = dtype_of_result(kind)
            numbers = all(type(each) is int and 0 <= each <= AREA_BYTES for each in (*shape, at))
            size = prod(shape) * dtype.itemsize
            if numbers and len(shape) <= 8 and at + size <= AREA_BYTES and size <= limit:
                result: Array = self._bytes[at : at + size].copy().view(dtype).reshape(shape)
                return result
        except (TypeError, ValueError, KeyError, AttributeError):
            pass
        raise FailedCallError("sent a result that is none")


class Server:
    """A process that has imported PyTorch and forks for each kernel; it is started when needed."""

    def __init__(self, python: str = sys.executable, threads: int = 2) -> None:
        if not hasattr(os, "memfd_create"):
            raise CannotRunError("a score needs Linux: judge by truenorm verify elsewhere")
        self._threads = threads
        self._process: subprocess.Popen[Any] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="truenorm-")
        for name in (RUNNER, CHILD):
            Path(self._folder.name, name).write_bytes(source_of(name))
        self._command = [python, "-W", "ignore", str(Path(self._folder.name, CHILD))]
        self._orders: socket.socket | None = None
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Server":
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self._end()
        self._folder.cleanup()

    def _start(self) -> None:
        self._end()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        with theirs:
            try:
                self._process = start_group(
                    [*self._command, str(theirs.fileno())],
                    env={**variables, **ENVIRONMENT},
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            except OSError as error:
                message = f"cannot start {self._command[0]}: {error.strerror}"
                raise CannotRunError(message) from error
        self._orders.settimeout(PYTORCH_SECONDS)
        try:
            reply = self._orders.recv(2000).decode()
        except TimeoutError:
            reply = f"it took longer than {PYTORCH_SECONDS:g} s"
        if reply != "ready":
            raise CannotRunError(f"PyTorch cannot be imported there: {reply or 'it ended'}")

    def _end(self) -> None:
        if self._orders is not None:
            self._orders.close()
        if self._process is not None:
            kill_group(self._process)
            self._process.wait()
            self._process = None

    def order(self, order: Mapping[str, Any], descriptors: Sequence[int]) -> None:
        """Start the process of a kernel."""
        for _ in range(2):
            with suppress(OSError):  # a kernel has killed it
                message = json.dumps({**order, "threads": self._threads}).encode()
                assert self._orders is not None
                socket.send_fds(self._orders, [message], descriptors)
                return
            self._start()


class Kernel:
    """Runs the calls of a kernel in a process of its own: a runner of the judge."""

    def __init__(
        self,
        server: Server,
        subject: Subject,
        options: Mapping[str, Any],
        suite: Sequence[Case],
    ) -> None:
        self.subject, self._server, self._options = subject, server, dict(options)
        self._suite, self._area = suite, Area()
        self._folder = tempfile.mkdtemp(prefix="kernel-")
        self._outputs = {each.name for each in subject.operation.outputs}
        self.deaths, self.operators = 0, set[str]()
        self.isolated = False
        self._seconds = FIRST * subject.seconds
        self._calls: socket.socket | None = None
        try:
            differentiable = self.start()
        except BaseException:
            self.close()
            raise
        if not differentiable:
            self.subject = Subject(
                in_another_process,
                name=subject.name,
                operation=subject.operation,
                dtypes=subject.dtypes,
                seconds=subject.seconds,
            )

    def start(self) -> bool:
        """Start the process, which imports the kernel; return True if it has a backward pass."""
        self._calls, calls = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lifeline, lifeline = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._area.clear()
        nonce, norm = secrets.token_hex(8), require_norm(self.subject.operation, "a score")
        trials = {case.dtype: case for case in self._suite if case.kind == "ordinary"}
        manifest = roles_of(norm)
        manifest["ones"] = [trial_of(case, self._area) for case in trials.values()]
        order = {
            "of": nonce,
            "folder": self._folder,
            "options": self._options,
            "manifest": manifest,
            "gradients": bool(norm.outputs_of(backward=True)),
        }
        descriptors = [calls.fileno(), self._area.descriptor, lifeline.fileno()]
        with calls, lifeline:
            self._server.order(order, descriptors)
        self._lifeline.settimeout(START_SECONDS)
        with suppress(OSError):
            self.isolated = self._lifeline.recv(100) == b"isolated"
        reply = self._reply(nonce, FIRST * self.subject.seconds)
        if "failure" in reply:
            raise FailedCallError(f"cannot be imported: {str(reply['failure'])[:500]}")
        return reply.get("backward") is True

    def stop(self) -> str:
        """End the process and all that it started; return how it ended."""
        if self._calls is None:
            return ""
        code = b""
        with self._calls, self._lifeline, suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
            code = self._lifeline.recv(100)
        self._calls = None
        return describe_exit(int(code)) if code.lstrip(b"-").isdigit() else "ended its process"

    def close(self) -> None:
        """End the process and release the memory."""
        self.stop()
        self._area.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, case: Case, call: Call) -> Record:
        """Make a call. A process that ends, hangs or sends nonsense is a failure."""
        if self.deaths >= MAX_DEATHS:
            raise GaveUpError
        start = time.perf_counter()
        try:
            arrays, reply = self._call(case, call)
        except FailedCallError as error:
            self.deaths += 1
            self.stop()
            return Record(case.name, call, failure=str(error), deaths=1)
        record = Record(
            case.name,
            call,
            failure=str(reply.get("failure", ""))[:2000],
            seconds=time.perf_counter() - start,
            left_out=str(reply.get("left_out", ""))[:2000] if call.kind == TWICE else "",
        )
        return completed_record(case, record, arrays, {})

    def list_operators(self, case: Case) -> None:
        """Make a call whose operators are listed; the kernel can lie about them."""
        with suppress(FailedCallError):
            _, reply = self._call(case, Call(), listed=True)
            self.operators |= {str(each)[:100] for each in reply.get("operators", ())}

    def _call(
        self, case: Case, call: Call, *, listed: bool = False
    ) -> tuple[dict[str, Array | None], dict[str, Any]]:
        """Return results and changed inputs by name, and the reply."""
        if self._calls is None:
            self.start()
        assert self._calls is not None
        self._area.clear()
        step = describe_call(case, PlannedCall(call), self._area)
        places = {entry[4]: name for name, entry in step["tensors"].items() if entry}
        nonce = secrets.token_hex(8)
        request = {"of": nonce, "step": step, "free": self._area.free, "list": listed}
        with suppress(OSError):  # it has ended, as its reply says
            self._calls.send(json.dumps(request).encode())
        answers = expected(case)
        for output in answers.types:  # while the kernel runs
            answers.allowed(output)
        reply = self._reply(nonce, self._seconds)
        self._seconds = self.subject.seconds
        limit = largest_result(case, call)
        arrays = {
            name: self._area.result(entry, limit)
            for name, entry in reply["arrays"].items()
            if name.removeprefix("later ") in self._outputs
        }
        for given in self._area.given:
            if given.at in places and self._area.is_changed(given):
                arrays[f"given {places[given.at]}"] = given.view.copy()
        return arrays, reply

    def _reply(self, nonce: str, seconds: float) -> dict[str, Any]:
        """Return the reply to a message, or raise an error."""
        assert self._calls is not None
        self._calls.settimeout(seconds)
        try:
            message = self._calls.recv(REPLY_BYTES)
        except TimeoutError:
            raise FailedCallError(describe_hang(seconds)) from None
        except OSError:
            message = b""
        if not message:
            raise FailedCallError(self.stop() or "ended its process")
        try:
            reply = json.loads(message)
            arrays, operators = reply.setdefault("arrays", {}), reply.get("operators", [])
            if reply["of"] == nonce and type(arrays) is dict and type(operators) is list:
                return dict(reply)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raise FailedCallError("sent a reply that is none")
