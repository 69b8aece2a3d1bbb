"""A program that is run to its end, or brought to it: with a time limit, and nothing left over."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["Program", "kill_group"]

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
