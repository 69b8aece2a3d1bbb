"""How the judge and the process of a subject talk: a line of JSON, then raw arrays. No pickle."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import prod
from typing import IO, Any

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.running.command import kill_group
from truenorm.verify.running.records import Call, GaveUpError, Record
from truenorm.verify.types import FORMATS, NUMERIC_TYPES, Array, dtype_of

LONGEST_LINE = 2**20


class BrokenMessageError(Exception):
    """What arrived is not a message."""


def send(pipe: IO[bytes], message: Mapping[str, Any], arrays: Mapping[str, Array | None]) -> None:
    """Write a message; its arrays follow as they lie in memory."""
    described = {
        name: None if array is None else [array.dtype.name, list(array.shape)]
        for name, array in arrays.items()
    }
    line = json.dumps({**message, "arrays": described}, allow_nan=False)
    pipe.write(line.encode() + b"\n")
    for array in arrays.values():
        if array is not None:
            # As bytes where they are: of a large array one copy more is felt.
            pipe.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    pipe.flush()


def receive(
    pipe: IO[bytes], limit: Callable[[], int]
) -> tuple[dict[str, Any], dict[str, Array | None]] | None:
    """Read a message, or None at the end; an array of more than `limit` bytes is refused.

    The limit is asked for when the message has come: it may depend on what was asked.
    """
    line = pipe.readline(LONGEST_LINE)
    if not line:
        return None
    try:
        message = json.loads(line)
        described = message.pop("arrays")
    except (ValueError, KeyError, AttributeError, TypeError) as unreadable:
        raise BrokenMessageError("a line that is no message") from unreadable
    arrays: dict[str, Array | None] = {}
    for name, description in described.items():
        if description is not None:
            kind, shape = description
            arrays[name] = _array(pipe, kind, shape, limit())
        else:
            arrays[name] = None
    return message, arrays


def _array(pipe: IO[bytes], kind: str, shape: list[int], limit: int) -> Array:
    if kind not in NUMERIC_TYPES:
        raise BrokenMessageError(f"an array of the unknown type {kind!r}")
    dtype = dtype_of(kind) if kind in FORMATS else np.dtype(kind)
    size = prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size > limit:
        raise BrokenMessageError(f"an array of shape {shape}, above {limit} bytes")
    # Read to where it stays: of a large array one copy more is felt.
    content = np.empty(size, np.uint8)
    read = 0
    while read < size and (more := pipe.readinto(content[read:].data)):  # type: ignore[attr-defined]
        read += more
    if read < size:
        raise BrokenMessageError("an array that ends too early")
    return content.view(dtype).reshape(shape)


START_SECONDS = 120.0  # to import a framework
CLEARING = 5.0  # for a worker to end what it has started, or for an end to be seen
GRACE = 15.0  # beyond the limit of a command, which the worker itself ends and clears away
DEATHS = 3  # after so many, the rest is not worth the time
KEPT_OUTPUT = 2**16
RESULT_BYTES = 2**20  # for each array, beside sixteen times the size of x


Answer = tuple[dict[str, Any], dict[str, Array | None]]


class CannotRunError(Exception):
    """The subject could not be loaded, or started."""


class SubjectProcess:
    """Runs a subject by sending cases to a worker; starts another one when it has died.

    Attributes
    ----------
    description : dict
        What the subject says of itself.
    deaths : int
        How often it has died; `DEATHS` if it could not be started again.
    """

    def __init__(
        self,
        target: str,
        *,
        operation: str = "",
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        # -P: a file called numpy.py in the current folder is not the one that was named.
        self._command = [python, "-P", "-m", "truenorm.verify.running.worker", target, operation]
        self._start_seconds = start_seconds
        self._environment = {**os.environ, **(environment or {})}
        self.deaths = 0
        self._start()

    def __enter__(self) -> "SubjectProcess":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the worker."""
        self._kill()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )
        self._limit = RESULT_BYTES
        # Of this process alone: what the last one still sends must not be taken for an answer.
        self._answers: queue.Queue[Answer | str] = queue.Queue()
        self._printed = bytearray()
        for work, pipe, into in (
            (self._listen, self._process.stdout, self._answers),
            (self._drain, self._process.stderr, self._printed),
        ):
            threading.Thread(target=work, args=(pipe, into), daemon=True).start()
        self.description: dict[str, Any] = {"callable": True}
        answer = self._answer(self._start_seconds)
        if isinstance(answer, str):
            self._kill()
            said = self._printed.decode(errors="replace").strip()
            hint = "; --start-seconds gives it longer" if "no answer" in answer else ""
            raise CannotRunError(
                f"the subject's process {answer}{hint}" + (f":\n{said}" if said else "")
            )
        message, _ = answer
        if "cannot" in message:
            self._kill()
            raise CannotRunError(message["cannot"])
        self.description = message["subject"]

    def _listen(self, pipe: IO[bytes], answers: "queue.Queue[Answer | str]") -> None:
        """Pass on every message; a string says how it ended."""
        try:
            while (answer := receive(pipe, lambda: self._limit)) is not None:
                answers.put(answer)
        except BrokenMessageError as broken:
            answers.put(f"sent {broken}")
        except ValueError:  # the pipe was closed
            pass
        answers.put("")

    @staticmethod
    def _drain(pipe: IO[bytes], printed: bytearray) -> None:
        """Keep the last of what it prints, so that it never waits for a reader."""
        with suppress(ValueError):  # the pipe was closed
            while chunk := pipe.read1(4096):  # type: ignore[attr-defined]
                printed += chunk
                del printed[:-KEPT_OUTPUT]

    def _answer(self, seconds: float) -> Answer | str:
        """Return the next message, or how the process ended."""
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            return f"gave no answer within {seconds:g} s"
        return answer or self._how_it_ended()

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(CLEARING)
        except subprocess.TimeoutExpired:
            return "closed its pipes and went on"
        if code < 0:
            return f"crashed: {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    def _kill(self) -> None:
        """End the worker and whatever it started."""
        if not self.description["callable"]:
            # The program has a group and a folder of its own, which the worker clears away.
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(CLEARING)
        kill_group(self._process)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def forgive(self) -> None:
        """Begin to count deaths anew, and start it again if it was given up."""
        if self.deaths >= DEATHS:
            self._start()
        self.deaths = 0

    @property
    def seconds(self) -> float:
        """How long one call may take."""
        return float(self.description["seconds"])

    def run(self, case: Case, call: Call) -> Record:
        """Send a case and wait for the answer; a crash or a hang becomes a failure."""
        if self.deaths >= DEATHS:
            raise GaveUpError
        started = time.perf_counter()
        rows, size = case.shape
        self._limit = RESULT_BYTES + 16 * dtype_of(case.dtype).itemsize * size * max(
            rows, call.stop
        )
        message = {
            "case": case.name,
            "dtype": case.dtype,
            "call": list(call),
            "eps": case.eps.hex(),
            "layout": case.layout,
        }
        # In a thread: a worker that has stopped reads nothing, and a full pipe waits for ever.
        sending = (self._process.stdin, message, case.inputs)
        threading.Thread(target=_sent, args=sending, daemon=True).start()
        grace = 0.0 if self.description["callable"] else GRACE
        answer = self._answer(self.seconds + grace)
        if not isinstance(answer, str) and answer[0]["of"] != [case.name, list(call)]:
            answer = "answered twice: does it fork?"
        seconds = time.perf_counter() - started
        if isinstance(answer, str):
            before = self.deaths
            failure = answer + self._again()
            deaths = self.deaths - before
            return Record(case.name, call, failure=failure, seconds=seconds, deaths=deaths)
        told, results = answer
        return Record(
            case.name,
            call,
            results,
            tuple(told["damaged"]),
            told["failure"],
            told["seconds"],
            told["left_out"],
            {name: tuple(outputs) for name, outputs in told["holds"].items()},
        )

    def _again(self) -> str:
        """Start another worker, if it is worth it; say so if that fails."""
        self.deaths += 1
        self._kill()
        if self.deaths < DEATHS:
            try:
                self._start()
            except CannotRunError as why:
                self.deaths = DEATHS
                return f"; and it could not be started again: {why}"
        return ""


def _sent(pipe: IO[bytes], message: Mapping[str, Any], arrays: Mapping[str, Array | None]) -> None:
    """Send a message, unless the process has gone."""
    with suppress(BrokenPipeError, ValueError):
        send(pipe, message, arrays)
