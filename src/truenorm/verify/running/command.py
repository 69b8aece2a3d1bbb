"""Run the command of a subject, which reads a case from files and writes its results to one.

The files are raw little-endian arrays and a manifest in plain text. With the same files,
`truenorm.verify.report.vectors` writes cases and exact answers for the tests of a kernel.
"""

import contextlib
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from truenorm.verify.calls import Call, case_of_call
from truenorm.verify.operation import Case
from truenorm.verify.running.records import Record
from truenorm.verify.running.runner import kill_group, start_group
from truenorm.verify.running.tiled import reduced_record
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of

MANIFEST = "manifest.txt"
HEADER = "truenorm-vectors 1"
_NAME = re.compile(r"[A-Za-z0-9.+-]{1,100}")  # scanf("%100s") reads it, and it is no path
TAIL_BYTES = 1 << 16  # of the output that are kept: an error message ends with its reason
OUTPUT_BYTES = 1 << 20  # that a program may print before it is stopped


def fits(case: Case) -> bool:
    """Return True if the files can hold a case: rows and parameters, all of one type."""
    # A program chooses the address to which it reads its rows.
    return (case.layout in ("rows", "unaligned") and not case.gradient_layout) and all(
        array is not None and array.dtype == dtype_of(case.dtype) for array in case.inputs.values()
    )


def manifest(cases: Iterable[Case]) -> str:
    """Return a manifest; raise ValueError for a name that cannot be a field and a file name."""
    lines, seen = [HEADER], set()
    for case in cases:
        if not _NAME.fullmatch(case.name):
            raise ValueError(
                f"case name {case.name!r} cannot be written to a manifest: "
                "it needs 1 to 100 of the characters A-Z a-z 0-9 . + -"
            )
        # Some file systems ignore case.
        if case.name.casefold() in seen:
            raise ValueError(f"two cases are named {case.name!r}: their files would be the same")
        seen.add(case.name.casefold())
        rows, d = case.shape
        lines.append(f"{case.name} {case.dtype} {rows} {d} {float(case.eps).hex()}")
    return "\n".join(lines) + "\n"


def little_endian(array: Array) -> bytes:
    """Return the bytes of an array in C order, the lowest byte of each number first.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm.verify.running.command import little_endian
    >>> little_endian(np.array([1.0, -2.0], np.float16)).hex(" ")
    '00 3c 00 c0'
    """
    size = array.dtype.itemsize
    return np.ascontiguousarray(array).view(f"u{size}").astype(f"<u{size}", copy=False).tobytes()


def _from_little_endian(data: bytes, dtype: str) -> Array:
    """Return the array whose bytes `little_endian` returned."""
    kind = dtype_of(dtype)
    bits = np.frombuffer(data, f"<u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind)


def _bytes_of_inputs(case: Case) -> dict[str, bytes]:
    return {name: little_endian(array) for name, array in case.inputs.items() if array is not None}


def write_input(folder: Path, case: Case) -> int:
    """Write the inputs of a case to ``<name>.in`` and return the number of bytes."""
    return write_new(folder / f"{case.name}.in", b"".join(_bytes_of_inputs(case).values()))


def write_new(path: Path, data: bytes) -> int:
    """Write a new file and return its size; raise FileExistsError rather than overwrite one."""
    with path.open("xb") as file:
        return file.write(data)


def _size_of(path: Path) -> int | None:
    """Return the size of a regular file, or None: reading a pipe or a device could block."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def read_results(path: Path, case: Case, results: dict[str, Array | None]) -> str:
    """Fill in the results from a file of the expected size; return an error, or nothing."""
    operation, itemsize = case.operation, dtype_of(case.dtype).itemsize
    shapes = {
        each.name: case.shape if operation.is_rows(each.name) else case.shape[1:]
        for each in operation.outputs
    }
    counts = {name: math.prod(shape) for name, shape in shapes.items()}
    forward = operation.outputs_of(backward=False)
    size, all_bytes = _size_of(path), itemsize * sum(counts.values())
    if size is None:
        return f"wrote no file {path.name}"
    if size not in (all_bytes, itemsize * sum(counts[name] for name in forward)):
        return f"wrote {size} bytes to {path.name}, expected {all_bytes}"
    numbers = _from_little_endian(path.read_bytes(), case.dtype)
    for name in counts if size == all_bytes else forward:
        results[name] = numbers[: counts[name]].reshape(shapes[name])
        numbers = numbers[counts[name] :]
    return ""


def input_damage(path: Path, case: Case) -> tuple[str, ...]:
    """Return the inputs whose bytes in the file have changed."""
    inputs = _bytes_of_inputs(case)
    if _size_of(path) != sum(map(len, inputs.values())):
        return tuple(inputs)
    data = memoryview(path.read_bytes())
    damaged = []
    for name, before in inputs.items():
        if data[: len(before)] != before:
            damaged.append(name)
        data = data[len(before) :]
    return tuple(damaged)


class Program:
    """A process in a new process group, with limits on its time and on its output."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._process = start_group(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._ended = threading.Event()
        self._tails = {"stderr": bytearray(), "stdout": bytearray()}
        self._flooded = ""

    def failure(self, seconds: float) -> str:
        """Wait for the exit, kill the process group, and return an error, or nothing."""
        process = self._process
        readers = [
            threading.Thread(target=self._read, args=(pipe, name), daemon=True)
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        try:
            for thread in (*readers, threading.Thread(target=self._watch, daemon=True)):
                thread.start()
            in_time = self._ended.wait(min(seconds, threading.TIMEOUT_MAX))
        finally:
            kill_group(process)
            process.wait()
        for reader in readers:
            reader.join(1.0)  # a descendant outside the group may keep the pipe open
        if self._flooded:
            return f"stopped: it printed more than {OUTPUT_BYTES >> 20} MiB to {self._flooded}"
        if not in_time:
            return f"no answer within {seconds:g} s"
        return self._failure_of_exit()

    def stop(self) -> None:
        """End the wait in `failure`, which then kills the process group."""
        self._ended.set()

    @property
    def exit_code(self) -> int:
        """The exit code, or minus the number of the signal that ended the process."""
        code: int = self._process.returncode
        return code

    @property
    def printed(self) -> str:
        """The last lines of stdout and stderr."""
        tails = (self._tails[name].decode(errors="replace") for name in ("stdout", "stderr"))
        return "\n".join(text.strip() for text in tails if text.strip())

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            # WNOWAIT keeps the process id reserved until the group is killed.
            with contextlib.suppress(ChildProcessError):  # already killed and waited for
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._ended.set()

    def _read(self, pipe: IO[bytes], name: str) -> None:
        """Read the output, so that the program never blocks, and keep the end of it."""
        tail, total = self._tails[name], 0
        with pipe:
            while data := pipe.read(TAIL_BYTES):
                total += len(data)
                tail += data
                del tail[:-TAIL_BYTES]
                if total > OUTPUT_BYTES and not self._flooded:
                    self._flooded = name
                    self._ended.set()

    def _failure_of_exit(self) -> str:
        code = self._process.returncode
        if code == 0:
            return ""
        if code < 0:
            names = {each.value: each.name for each in signal.Signals}
            return f"crashed: signal {names.get(-code, -code)}"
        printed = bytes(self._tails["stderr"]) or bytes(self._tails["stdout"])
        lines = printed.decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f": {lines[-1][:300]}" if lines else "")


class CommandRunner:
    """Runs the command of a subject, in a new process for each call.

    Each call has a private folder with ``manifest.txt``, which lists one case, and its input
    ``<name>.in``. The program gets the folder as its last argument and must write ``<name>.out``
    there: all results, or those of forward alone. Afterwards the runner removes the folder and
    kills the process group of the program.

    The program runs in that folder, without a shell. A program name with a path is resolved from
    the current directory when the runner is created. The other arguments are passed unchanged: a
    path among them should be absolute.
    """

    def __init__(self, subject: Subject) -> None:
        if subject.command is None:
            raise ValueError(f"{subject.name} has no command")
        self.subject = subject
        self._program = subject.command[0]
        self._arguments = [_located(subject.command[0]), *subject.command[1:]]

    def run(self, case: Case, call: Call) -> Record:
        """Run the program once and return its results, or how it failed.

        A new process has no state, so that a call with another forward pass in between is plain.
        """
        name, of_rows, case = case.name, case, case_of_call(case, call)
        if not fits(case):
            *others, last = ["rows", *case.operation.inputs_of("parameter")]
            arrays = f"{', '.join(others)} and {last}" if others else last
            reason = f"the files of a command hold {arrays}, all of one type, and not this case"
            return Record(name, call, failure=reason)
        folder = Path(tempfile.mkdtemp(prefix="truenorm-"))
        try:
            record = self._run_in(folder, case, call)
            return reduced_record(of_rows, record) if call.how.repeats_rows else record
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, folder: Path, case: Case, call: Call) -> Record:
        try:
            listing = manifest([case])
            (folder / MANIFEST).write_text(listing, encoding="ascii", newline="\n")
            write_input(folder, case)
        except OSError as error:
            if not call.how.large:
                raise
            return Record(case.name, call, left_out=f"its input could not be written: {error}")
        start = time.perf_counter()
        failure = self._failure(folder)
        seconds = time.perf_counter() - start
        results: dict[str, Array | None] = {}
        if not failure:
            failure = read_results(folder / f"{case.name}.out", case, results)
        damaged = input_damage(folder / f"{case.name}.in", case)
        return Record(case.name, call, results, damaged, failure, seconds)

    def _failure(self, folder: Path) -> str:
        """Run the program to its end and return how it failed, or nothing."""
        try:
            process = Program([*self._arguments, str(folder)], folder)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in an argument
            reason = error.strerror if isinstance(error, OSError) else error
            return f"cannot start {self._program!r}: {reason}"
        return process.failure(self.subject.seconds)


def _located(program: str) -> str:
    """Return the absolute path of a program, which is started from another folder."""
    if os.path.basename(program) != program:  # noqa: PTH119  (Path("./a") is Path("a"))
        return str(Path(program).absolute())
    path = shutil.which(program)
    return program if path is None else str(Path(path).absolute())
