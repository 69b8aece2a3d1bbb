"""Put a case to a program: files in a private folder, a time limit, and nothing taken on trust."""

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from truenorm.verify import vectors
from truenorm.verify.inputs import Case
from truenorm.verify.record import LARGE, Call, Record
from truenorm.verify.running import given
from truenorm.verify.subject import Subject
from truenorm.verify.types import Array, dtype_of

__all__ = ["CommandRunner"]

KEPT = 1 << 16  # bytes of what it prints, the last ones: an error message ends with its reason
MOST = 1 << 20  # bytes that it may print before it is stopped


class CommandRunner:
    """Runs the command of a subject, a new process for each call.

    For each call a folder that only this user can enter is made. It holds ``manifest.txt`` with
    one case, and its input ``<name>.in``. The program gets the folder as its last argument, and
    must write ``<name>.out`` there: y, dx, dgamma and dbeta, or y alone. Afterwards the folder is
    removed, with all processes of the program's group.

    The program runs in that folder, without a shell. If it is named with a path, it is found from
    the current directory at the time the runner is made. Its arguments are passed on as they are:
    a path among them should be absolute.

    Parameters
    ----------
    subject : Subject
        One with a command.

    Examples
    --------
    >>> import numpy as np
    >>> from truenorm.verify.command import CommandRunner
    >>> ones = np.ones((1, 2), np.float32)
    >>> case = Case("ones", "float32", ones, ones[0], ones[0], ones, eps=1.0)
    >>> runner = CommandRunner(Subject(command=["./no-such-program"]))
    >>> print(runner.run(case, Call()).failure)
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
        if not vectors.fits(asked):
            reason = "a command gets rows, gamma and beta, all of one type: this case is another"
            return Record(case.name, call, failure=reason)
        folder = Path(tempfile.mkdtemp(prefix="truenorm-"))
        try:
            return self._run_in(folder, asked, call)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _run_in(self, folder: Path, case: Case, call: Call) -> Record:
        try:
            listing = vectors.manifest([case])
            (folder / vectors.MANIFEST).write_text(listing, encoding="ascii", newline="\n")
            vectors.write_input(folder, case)
        except OSError as full:
            if call.kind != LARGE:
                raise
            return Record(case.name, call, left_out=f"its input could not be written: {full}")
        start = time.perf_counter()
        failure = self._failure_of_process(folder)
        seconds = time.perf_counter() - start
        results: dict[str, Array | None] = {}
        if not failure:
            failure = _read_results(folder / f"{case.name}.out", case, results)
        damaged = _damaged(folder / f"{case.name}.in", case)
        return Record(case.name, call, results, damaged, failure, seconds)

    def _failure_of_process(self, folder: Path) -> str:
        """Run the program to its end; return how it failed, or nothing."""
        try:
            process = _Process([*self._arguments, str(folder)], folder)
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


class _Process:
    """A process with a group of its own, whose output is read but not kept."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            arguments,
            cwd=folder,
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
            self._kill_group()
            process.wait()
        for reader in readers:
            reader.join(1.0)  # a descendant that left the group may hold the pipe for ever
        if self._too_much:
            return f"stopped: it printed more than {MOST >> 20} MiB to {self._too_much}"
        if not in_time:
            return f"no answer within {seconds:g} s"
        return self._failure_of_exit()

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

    def _kill_group(self) -> None:
        """Kill the process and its descendants, also those that it left behind."""
        if sys.platform == "win32":
            self._process.kill()
            return
        # All may be gone; of a group of zombies macOS says "permission".
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

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


def _size_of(path: Path) -> int | None:
    """Return the size of a regular file; None for anything else, which could block or lie."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _read_results(path: Path, case: Case, results: dict[str, Array | None]) -> str:
    """Fill in the results from a file of the right size; return what was wrong, or nothing."""
    rows, d = case.x.shape
    item = dtype_of(case.dtype).itemsize
    whole, forward = (2 * rows * d + 2 * d) * item, rows * d * item
    size = _size_of(path)
    if size is None:
        return f"wrote no file {path.name}"
    if size not in (whole, forward):
        return f"wrote {size} bytes to {path.name}, expected {whole}"
    numbers = vectors.from_little_endian(path.read_bytes(), case.dtype)
    results["y"] = numbers[: rows * d].reshape(rows, d)
    if size == whole:
        dx, dgamma, dbeta = np.split(numbers[rows * d :], [rows * d, rows * d + d])
        results |= {"dx": dx.reshape(rows, d), "dgamma": dgamma, "dbeta": dbeta}
    return ""


def _damaged(path: Path, case: Case) -> tuple[str, ...]:
    """Return which inputs are no longer in their file as they were."""
    given = {name: vectors.little_endian(getattr(case, name)) for name in vectors.INPUTS}
    if _size_of(path) != sum(map(len, given.values())):
        return vectors.INPUTS
    data = memoryview(path.read_bytes())
    damaged = []
    for name, before in given.items():
        if data[: len(before)] != before:
            damaged.append(name)
        data = data[len(before) :]
    return tuple(damaged)
