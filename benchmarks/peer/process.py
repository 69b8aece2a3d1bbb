"""The command's end of a peer's process, and the environment it runs in."""

import contextlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from benchmarks.peer.environments import ROOT, Peer
from benchmarks.timing import asking_for
from truenorm.tools.progress import status_line

__all__ = ["PeerProcess", "all_cpu_seconds", "python_for"]

FOLDER = ROOT / "benchmarks" / "environments"  # git ignores it

# These would make truenorm compute something else than what the table says.
OVERRIDES = ("TRUENORM_ROUNDING", "PYTHONPATH")
SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0


def python_for(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment, which is made if it is not there yet."""
    home = FOLDER / peer.environment
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    # Written last: an installation that was broken off, or is of other versions, is done again.
    done = home / "installed.txt"
    wanted = "\n".join(peer.requirements) + "\n"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        status_line(f"installing {' '.join(peer.requirements)}")
        venv.create(home, clear=True, symlinks=os.name != "nt", with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *peer.requirements],
            check=True,
            stdout=sys.stderr,
        )
        done.write_text(wanted, encoding="utf-8")
        status_line()
    return python


def all_cpu_seconds() -> float:
    """Return what all cores have computed so far, for anyone; 0 where the system does not tell."""
    try:
        line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return 0.0
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = [int(number) for number in line.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * SECONDS_PER_TICK


class PeerProcess:
    """A worker that stays alive between its turns."""

    def __init__(self, peer: Peer, python: Path, threads: int) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in OVERRIDES}
        environment |= asking_for(threads) | {"PYTHONNOUSERSITE": "1", "JAX_PLATFORMS": "cpu"}
        if peer.needs_checkout:
            environment["PYTHONPATH"] = str(ROOT / "src")
        self.peer = peer
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peer.worker", peer.name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def ask(self, do: str, **request: Any) -> Any:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            line = ""
        else:
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.peer.name} ended: see its message above")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.peer.name} failed to {do}:\n{reply['error']}")
        return reply["answer"]

    def cpu_seconds(self) -> float:
        """Return what all its threads have computed so far; 0 where the system does not tell."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return 0.0
        # The name before the last parenthesis may contain blanks; user and system time are the
        # 12th and 13th field after it.
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * SECONDS_PER_TICK

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        self._process.wait()
