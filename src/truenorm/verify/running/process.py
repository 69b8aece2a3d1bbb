"""Run a subject in a process of its own, which `truenorm.verify.running.worker` executes.

Messages between the two are a line of JSON, then raw arrays. Pickle is not used.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from math import prod
from typing import IO, Any, Unpack

import numpy as np

from truenorm.verify.calls import Call
from truenorm.verify.operation import Case
from truenorm.verify.running.command import TAIL_BYTES
from truenorm.verify.running.loading import TORCH
from truenorm.verify.running.records import CannotRunError, GaveUpError, Record
from truenorm.verify.running.runner import kill_group, start_group
from truenorm.verify.running.torch_subject import DTYPES
from truenorm.verify.subject import Subject, SubjectOptions, SubjectSpec
from truenorm.verify.types import CODE_TYPES, NUMERIC_TYPES, Array, dtype_of, numeric_dtype

START_SECONDS = 120.0  # enough to import a framework
EXIT_SECONDS = 5.0  # for a worker to end its program, or for its exit to be seen
GRACE_SECONDS = 15.0  # beyond the limit of a command, which the worker enforces itself
MAX_DEATHS = 3  # then the remaining cases are not run
LINE_BYTES = 2**20
RESULT_BYTES = 2**20  # per array, in addition to sixteen times the size of x
REUSE_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}
"""Settings of glibc: the worker keeps freed memory, since new pages are slow in large calls."""
Arrays = Mapping[str, Array | None]
Message = tuple[dict[str, Any], dict[str, Array | None]]


class BrokenMessageError(Exception):
    """The bytes that arrived are not a message."""


def send(pipe: IO[bytes], message: Mapping[str, Any], arrays: Arrays) -> None:
    """Write a message, followed by the bytes of its arrays."""
    described = {
        name: None if array is None else [array.dtype.name, list(array.shape)]
        for name, array in arrays.items()
    }
    line = json.dumps({**message, "arrays": described}, allow_nan=False)
    pipe.write(line.encode() + b"\n")
    for array in arrays.values():
        if array is not None:
            # A view of the bytes: copying a large array takes noticeable time.
            pipe.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    pipe.flush()


def receive(pipe: IO[bytes], limit: Callable[[], int]) -> Message | None:
    """Read a message, or return None at the end of the pipe.

    Raise BrokenMessageError if an array has more bytes than `limit()`. The limit is a function
    because it depends on the request that the message answers.
    """
    line = pipe.readline(LINE_BYTES)
    if not line:
        return None
    try:
        message = json.loads(line)
        described = message.pop("arrays")
    except (ValueError, KeyError, AttributeError, TypeError) as unreadable:
        raise BrokenMessageError("a line that is no message") from unreadable
    arrays = {
        name: None if description is None else _read_array(pipe, description, limit())
        for name, description in described.items()
    }
    return message, arrays


def _read_array(pipe: IO[bytes], description: list[Any], limit: int) -> Array:
    kind, shape = description
    if kind not in (*NUMERIC_TYPES, *CODE_TYPES):
        raise BrokenMessageError(f"an array of the unknown type {kind!r}")
    dtype = numeric_dtype(kind)
    size = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > limit:
        raise BrokenMessageError(f"an array of shape {shape}, above {limit} bytes")
    # Read into the array itself: copying a large array takes noticeable time.
    content = np.empty(size, np.uint8)
    read = 0
    while read < size and (more := pipe.readinto(content[read:].data)):  # type: ignore[attr-defined]
        read += more
    if read < size:
        raise BrokenMessageError("an array that ends too early")
    return content.view(dtype).reshape(shape)


def describe_exit(code: int) -> str:
    """Return how a process ended that was not told to.

    Examples
    --------
    >>> describe_exit(1), describe_exit(-11)
    ('ended with exit code 1', 'crashed: SIGSEGV')
    """
    if code >= 0:
        return f"ended with exit code {code}"
    names = {each.value: each.name for each in signal.Signals}
    return f"crashed: {names.get(-code, f'signal {-code}')}"


def describe_hang(seconds: float) -> str:
    """Return the outcome of a call that took longer than its time limit."""
    return f"gave no answer within {seconds:g} s"


def largest_result(case: Case, call: Call) -> int:
    """Return the number of bytes that one result of a call may have."""
    rows, size = case.shape
    return RESULT_BYTES + 16 * dtype_of(case.dtype).itemsize * size * max(rows, call.stop)


class SubjectProcess(AbstractContextManager["SubjectProcess"]):
    """Runs a subject by sending cases to a worker process, which it restarts after a crash.

    Options override claims of the subject; if `strict`, for those on its domain, all rows count.
    `another` starts another process of the same subject.

    The functions of `subject` run in the worker only; `spec` says where it is defined. `deaths` is
    the number of crashes and hangs, or `MAX_DEATHS` if the worker could not be restarted.
    """

    def __init__(
        self,
        target: str,
        *,
        strict: bool = False,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
        **options: Unpack[SubjectOptions],
    ) -> None:
        self.another = partial(
            SubjectProcess,
            target,
            strict=strict,
            environment=environment,
            start_seconds=start_seconds,
            **options,
        )
        # -P: a file called numpy.py in the current folder must not shadow the package.
        self._command = [sys.executable, "-P", "-m", "truenorm.verify.running.worker"]
        self._load = {
            "target": target,
            "operation": options.get("operation") or "",
            "dtypes": list(options.get("dtypes") or ()),
        }
        self._start_seconds = start_seconds
        self._environment = {**REUSE_MEMORY, **os.environ, **(environment or {})}
        self._is_command = False
        self.deaths = 0
        loaded = self._start()
        self.spec = SubjectSpec(*loaded["spec"])
        if self.spec.file == TORCH and not options.get("dtypes"):
            options["dtypes"] = DTYPES
        try:
            self.subject = Subject.from_description(loaded["subject"], options, strict=strict)
        except ValueError as error:
            self._kill()
            raise CannotRunError(str(error)) from error
        self._is_command = self.subject.command is not None

    def __exit__(self, *_: object) -> None:
        """End the worker."""
        self._kill()

    def _start(self) -> dict[str, Any]:
        """Start a worker and return its message about the subject."""
        self._process = start_group(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
        )
        self._limit = RESULT_BYTES
        self._sent: Arrays = {}
        # New for each worker: late messages of the last one must not be read as answers.
        self._answers: queue.Queue[Message | str] = queue.Queue()
        self._stderr = bytearray()
        for work, pipe, sink in (
            (self._listen, self._process.stdout, self._answers),
            (self._drain, self._process.stderr, self._stderr),
        ):
            threading.Thread(target=work, args=(pipe, sink), daemon=True).start()
        self._send(self._load, {})
        answer = self._answer(self._start_seconds)
        if isinstance(answer, str):
            self._kill()
            printed = self._stderr.decode(errors="replace").strip()
            hint = "; --start-seconds gives it longer" if "no answer" in answer else ""
            raise CannotRunError(
                f"the subject's process {answer}{hint}" + (f":\n{printed}" if printed else "")
            )
        message, _ = answer
        if "cannot" in message:
            self._kill()
            raise CannotRunError(message["cannot"])
        return message

    def _listen(self, pipe: IO[bytes], answers: "queue.Queue[Message | str]") -> None:
        """Queue every message, then a string that says how the stream ended."""
        try:
            while (answer := receive(pipe, lambda: self._limit)) is not None:
                answers.put(answer)
        except BrokenMessageError as broken:
            answers.put(f"sent {broken}")
        except ValueError:  # the pipe was closed
            pass
        answers.put("")

    @staticmethod
    def _drain(pipe: IO[bytes], tail: bytearray) -> None:
        """Keep the end of stderr, so that the worker never blocks on a full pipe."""
        with suppress(ValueError):  # the pipe was closed
            while chunk := pipe.read1(4096):  # type: ignore[attr-defined]
                tail += chunk
                del tail[:-TAIL_BYTES]

    def _send(self, message: Mapping[str, Any], arrays: Arrays) -> None:
        """Send a message in a thread: writing blocks if the worker has stopped reading."""
        sending = (self._process.stdin, message, arrays)
        threading.Thread(target=_send_if_alive, args=sending, daemon=True).start()

    def _answer(self, seconds: float) -> Message | str:
        """Return the next message, or how the process ended."""
        try:
            answer = self._answers.get(timeout=min(seconds, threading.TIMEOUT_MAX))
        except queue.Empty:
            return describe_hang(seconds)
        return answer or self._how_it_ended()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipes and went on"
        return describe_exit(code)

    def _kill(self) -> None:
        """End the worker and all processes that it started."""
        if self._is_command:
            # The program has its own process group and folder, which the worker removes.
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_SECONDS)
        kill_group(self._process)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def run(self, case: Case, call: Call) -> Record:
        """Send a case and wait for the answer; a crash or a hang becomes a failure."""
        if self.deaths >= MAX_DEATHS:
            raise GaveUpError
        started = time.perf_counter()
        self._limit = largest_result(case, call)
        message = {
            "case": case.name,
            "dtype": case.dtype,
            "call": list(call),
            "eps": case.eps.hex(),
            "layout": case.layout,
        }
        # Most calls have the inputs of the last one, which the worker still has.
        self._send(message, {} if case.inputs is self._sent else case.inputs)
        self._sent = case.inputs
        answer = self._answer(self.subject.seconds + self._is_command * GRACE_SECONDS)
        if not isinstance(answer, str) and answer[0]["of"] != [case.name, list(call)]:
            answer = "answered twice: does it fork?"
        seconds = time.perf_counter() - started
        if isinstance(answer, str):
            before = self.deaths
            failure = answer + self._restart()
            deaths = self.deaths - before
            return Record(case.name, call, failure=failure, seconds=seconds, deaths=deaths)
        outcome, results = answer
        return Record(
            case.name,
            call,
            results,
            tuple(outcome["damaged"]),
            outcome["failure"],
            outcome["seconds"],
            outcome["left_out"],
            {name: tuple(outputs) for name, outputs in outcome["holds"].items()},
        )

    def _restart(self) -> str:
        """Start another worker unless it died too often; return why that failed, or nothing."""
        self.deaths += 1
        self._kill()
        if self.deaths < MAX_DEATHS:
            try:
                self._start()
            except CannotRunError as error:
                self.deaths = MAX_DEATHS
                return f"; and it could not be started again: {error}"
        return ""


def _send_if_alive(pipe: IO[bytes], message: Mapping[str, Any], arrays: Arrays) -> None:
    with suppress(BrokenPipeError, ValueError):
        send(pipe, message, arrays)
