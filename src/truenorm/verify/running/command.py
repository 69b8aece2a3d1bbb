"""Cases as files that any language reads: raw little-endian arrays and a manifest in plain text.

`truenorm.verify.report.vectors` writes them for the tests of a kernel, with exact answers;
`truenorm.verify.running.command` writes one case for a program, and reads what it answers.
"""

import contextlib
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from truenorm.verify.operation import Case
from truenorm.verify.running.records import LARGE, Call, Record, given
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of

MANIFEST = "manifest.txt"
HEADER = "truenorm-vectors 1"
_NAME = re.compile(r"[A-Za-z0-9.+-]{1,100}")  # scanf("%100s") reads it, and it is no path


def fits(case: Case) -> bool:
    """Tell whether the files can hold a case: rows and parameters, all of one type."""
    return (case.layout, case.gradient_layout) == ("rows", "") and all(
        array is not None and array.dtype == dtype_of(case.dtype) for array in case.inputs.values()
    )


def manifest(cases: Iterable[Case]) -> str:
    """Return the text of a manifest.

    Raises
    ------
    ValueError
        If a name cannot be a field of the manifest and the name of a file.
    """
    lines, seen = [HEADER], set()
    for case in cases:
        if not _NAME.fullmatch(case.name):
            raise ValueError(
                f"case name {case.name!r} cannot be written to a manifest: "
                "it needs 1 to 100 of the characters A-Z a-z 0-9 . + -"
            )
        # Some file systems do not tell capitals apart.
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
    """Return the numbers whose bytes `little_endian` would return."""
    kind = dtype_of(dtype)
    bits = np.frombuffer(data, f"<u{kind.itemsize}")
    return bits.astype(f"u{kind.itemsize}").view(kind)


def _bytes_of_inputs(case: Case) -> dict[str, bytes]:
    return {name: little_endian(array) for name, array in case.inputs.items() if array is not None}


def write_input(folder: Path, case: Case) -> int:
    """Write the arguments of a case to ``<name>.in``, and return the number of bytes."""
    return written(folder / f"{case.name}.in", b"".join(_bytes_of_inputs(case).values()))


def written(path: Path, data: bytes) -> int:
    """Write a new file, and return its size; what has appeared there meanwhile stays."""
    with path.open("xb") as file:
        return file.write(data)


def _size_of(path: Path) -> int | None:
    """Return the size of a regular file; None for anything else, which could block or lie."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def read_results(path: Path, case: Case, results: dict[str, Array | None]) -> str:
    """Fill in the results from a file of the right size; return what was wrong, or nothing."""
    operation, (rows, d) = case.operation, case.shape
    item = dtype_of(case.dtype).itemsize
    shapes = {
        each.name: (rows, d) if operation.is_rows(each.name) else (d,)
        for each in operation.outputs
    }
    counts = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    of_forward = operation.outputs_of(backward=False)
    whole, forward = (item * sum(counts[name] for name in names) for names in (counts, of_forward))
    size = _size_of(path)
    if size is None:
        return f"wrote no file {path.name}"
    if size not in (whole, forward):
        return f"wrote {size} bytes to {path.name}, expected {whole}"
    numbers = _from_little_endian(path.read_bytes(), case.dtype)
    for name in counts if size == whole else of_forward:
        results[name] = numbers[: counts[name]].reshape(shapes[name])
        numbers = numbers[counts[name] :]
    return ""


def input_damage(path: Path, case: Case) -> tuple[str, ...]:
    """Return which inputs are no longer in their file as they were."""
    given = _bytes_of_inputs(case)
    if _size_of(path) != sum(map(len, given.values())):
        return tuple(given)
    data = memoryview(path.read_bytes())
    damaged = []
    for name, before in given.items():
        if data[: len(before)] != before:
            damaged.append(name)
        data = data[len(before) :]
    return tuple(damaged)


KEPT = 1 << 16  # bytes of what it prints, the last ones: an error message ends with its reason
MOST = 1 << 20  # bytes that it may print before it is stopped


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that leads a group, and its descendants, also those that it left behind."""
    if sys.platform == "win32":
        process.kill()
        return
    # All may be gone; of a group of zombies macOS says "permission".
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


class Program:
    """A process with a group of its own, whose output is read but not kept."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            arguments,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._over = threading.Event()
        self._tails = {"stderr": bytearray(), "stdout": bytearray()}
        self._too_much = ""

    def failure(self, seconds: float) -> str:
        """Wait for the end, or bring it about; return what was wrong, or nothing."""
        process = self._process
        readers = [
            threading.Thread(target=self._read, args=(pipe, name), daemon=True)
            for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
        ]
        try:
            for thread in (*readers, threading.Thread(target=self._watch, daemon=True)):
                thread.start()
            in_time = self._over.wait(seconds)
        finally:
            kill_group(process)
            process.wait()
        for reader in readers:
            reader.join(1.0)  # a descendant that left the group may hold the pipe for ever
        if self._too_much:
            return f"stopped: it printed more than {MOST >> 20} MiB to {self._too_much}"
        if not in_time:
            return f"no answer within {seconds:g} s"
        return self._failure_of_exit()

    def stop(self) -> None:
        """Let it end at once: whoever waits for it in `failure` kills it."""
        self._over.set()

    @property
    def exit_code(self) -> int:
        """What it ended with; minus the signal that ended it."""
        code: int = self._process.returncode
        return code

    @property
    def printed(self) -> str:
        """The end of what it has printed, to stdout and then to stderr."""
        tails = (self._tails[name].decode(errors="replace") for name in ("stdout", "stderr"))
        return "\n".join(text.strip() for text in tails if text.strip())

    def _watch(self) -> None:
        if hasattr(os, "waitid"):
            # Not taken off the system's list yet: nobody else gets its number before the kill.
            with contextlib.suppress(ChildProcessError):  # killed, and waited for already
                os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self._process.wait()
        self._over.set()

    def _read(self, pipe: IO[bytes], name: str) -> None:
        """Read all that is printed, so that the program does not wait; keep the end of it."""
        tail, total = self._tails[name], 0
        with pipe:
            while data := pipe.read(KEPT):
                total += len(data)
                tail += data
                del tail[:-KEPT]
                if total > MOST and not self._too_much:
                    self._too_much = name
                    self._over.set()

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
    """Runs the command of a subject, a new process for each call.

    For each call a folder that only this user can enter is made. It holds ``manifest.txt`` with
    one case, and its input ``<name>.in``. The program gets the folder as its last argument, and
    must write ``<name>.out`` there: all results, or those of forward alone. Afterwards the folder
    is removed, with all processes of the program's group.

    The program runs in that folder, without a shell. If it is named with a path, it is found from
    the current directory at the time the runner is made. Its arguments are passed on as they are:
    a path among them should be absolute.

    Parameters
    ----------
    subject : Subject
        One with a command.

    Examples
    --------
    >>> import truenorm.verify as tv
    >>> from truenorm.verify.running.command import CommandRunner
    >>> runner = CommandRunner(Subject(command=["./no-such-program"]))
    >>> print(runner.run(tv.case("float32-normal-4x2"), Call()).failure)
    cannot start './no-such-program': No such file or directory
    """

    def __init__(self, subject: Subject) -> None:
        if subject.command is None:
            raise ValueError(f"{subject.name} has no command")
        self._shown = subject.command[0]
        self._arguments = [_located(subject.command[0]), *subject.command[1:]]
        self.seconds = subject.seconds

    def run(self, case: Case, call: Call) -> Record:
        """Run the program once and return what it answered, or how it failed.

        A process keeps nothing for the next one, so that a call with another forward pass in
        between is a plain one.
        """
        asked = given(case, call)
        if not fits(asked):
            what = " and ".join(["rows", *case.operation.inputs_of("parameter")])
            what = what.replace(" and ", ", ", what.count(" and ") - 1)
            reason = f"a command gets {what}, all of one type: this case is another"
            return Record(case.name, call, failure=reason)
        folder = Path(tempfile.mkdtemp(prefix="truenorm-"))
        try:
            return self._run_in(folder, asked, call)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, folder: Path, case: Case, call: Call) -> Record:
        try:
            listing = manifest([case])
            (folder / MANIFEST).write_text(listing, encoding="ascii", newline="\n")
            write_input(folder, case)
        except OSError as full:
            if call.kind != LARGE:
                raise
            return Record(case.name, call, left_out=f"its input could not be written: {full}")
        start = time.perf_counter()
        failure = self._failure_of_process(folder)
        seconds = time.perf_counter() - start
        results: dict[str, Array | None] = {}
        if not failure:
            failure = read_results(folder / f"{case.name}.out", case, results)
        damaged = input_damage(folder / f"{case.name}.in", case)
        return Record(case.name, call, results, damaged, failure, seconds)

    def _failure_of_process(self, folder: Path) -> str:
        """Run the program to its end; return how it failed, or nothing."""
        try:
            process = Program([*self._arguments, str(folder)], folder)
        except (OSError, ValueError) as refused:  # ValueError: a zero byte in an argument
            reason = refused.strerror if isinstance(refused, OSError) else refused
            return f"cannot start {self._shown!r}: {reason}"
        return process.failure(self.seconds)


def _located(program: str) -> str:
    """Return where a program is, since it will be started from another folder."""
    if os.path.basename(program) != program:  # noqa: PTH119  (Path("./a") is Path("a"))
        return str(Path(program).absolute())
    found = shutil.which(program)
    return program if found is None else str(Path(found).absolute())
