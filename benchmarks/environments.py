"""Other packages: the versions to install, their environments, and a process for each."""

import contextlib
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ROOT, thread_variables
from truenorm.tools.progress import status_line

FOLDER = ROOT / "benchmarks" / "environments"  # ignored by git
BASE = ("numpy==2.4.6", "ml_dtypes==0.6.0")  # ml_dtypes gives NumPy bfloat16
OVERRIDES = ("TRUENORM_ROUNDING", "PYTHONPATH")
"""Variables that would change what a peer computes."""
SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0


class Peer(NamedTuple):
    """A package that takes part, and what has to be installed for it."""

    name: str
    environment: str
    requirements: tuple[str, ...]
    needs_checkout: bool = False  # truenorm is imported from src, not installed

    @property
    def packages(self) -> list[str]:
        """The names of the required packages."""
        return [each.partition("==")[0] for each in self.requirements]


# The only list of versions. Each is exact, so that a figure can be reproduced; a looser torch may
# download gigabytes for a GPU.
PEERS = {
    peer.name: peer
    for peer in (
        Peer("textbook", "truenorm", BASE, needs_checkout=True),
        Peer("textbook64", "truenorm", BASE, needs_checkout=True),
        Peer("thinc", "thinc", (*BASE, "thinc==8.3.14")),
        Peer("torch", "torch", (*BASE, "torch==2.13.0")),
        Peer("jax", "jax", (*BASE, "jax==0.10.2", "jaxlib==0.10.2")),
        Peer("onnxruntime", "onnxruntime", (*BASE, "onnxruntime==1.31.1", "onnx==1.23.2")),
        Peer("truenorm", "truenorm", BASE, needs_checkout=True),
    )
}
RECIPES = Peer(
    "recipes",
    "recipes",
    (
        *PEERS["torch"].requirements,
        "litgpt==0.4.11",
        "mlx[cpu]==0.32.4",
        "onnx==1.23.2",
        "onnxruntime==1.31.1",
        "quack-kernels==0.6.5",
        "transformers==5.22.2",
        "triton==3.9.0",  # quack imports it
    ),
)
"""Norms that run on a CPU, for `benchmarks.recipes`."""


def python_for(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment; create the environment if necessary."""
    home = FOLDER / peer.environment
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    # Written last: an incomplete installation, or one of other versions, is repeated.
    done = home / "installed.txt"
    required = "\n".join(peer.requirements) + "\n"
    if not done.exists() or done.read_text(encoding="utf-8") != required:
        status_line(f"installing {' '.join(peer.requirements)}")
        venv.create(home, clear=True, symlinks=os.name != "nt", with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", *peer.requirements]
        subprocess.run(install, check=True, stdout=sys.stderr)
        done.write_text(required, encoding="utf-8")
        status_line()
    return python


def all_cpu_seconds() -> float:
    """Return the processor time of all processes so far; 0 if the system does not report it."""
    try:
        line = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return 0.0
    # user, nice, system, idle, iowait, irq, softirq, steal
    ticks = [int(number) for number in line.split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) * SECONDS_PER_TICK


class PeerProcess:
    """A process of `benchmarks.peers_worker` that stays alive between requests."""

    def __init__(self, peer: Peer, python: Path, threads: int) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in OVERRIDES}
        environment |= thread_variables(threads)
        environment |= {"PYTHONNOUSERSITE": "1", "JAX_PLATFORMS": "cpu"}
        if peer.needs_checkout:
            environment["PYTHONPATH"] = str(ROOT / "src")
        self.peer = peer
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers_worker", peer.name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def ask(self, do: str, **request: Any) -> Any:
        """Send a request and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self.peer.name} ended: see its message above")
        reply = json.loads(line)
        if "error" in reply:
            raise RuntimeError(f"{self.peer.name} failed to {do}:\n{reply['error']}")
        return reply["answer"]

    def versions(self) -> dict[str, str]:
        """Return the versions of Python, of the peer's packages, and of truenorm if it is used."""
        packages, truenorm = self.peer.packages, self.peer.needs_checkout
        answer: dict[str, str] = self.ask("versions", packages=packages, truenorm=truenorm)
        return answer

    def cpu_seconds(self) -> float:
        """Return the processor time of its threads so far; 0 if the system does not report it."""
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        except OSError:
            return 0.0
        # User and system time are the 12th and 13th field after the name, which may have blanks.
        fields = stat.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * SECONDS_PER_TICK

    def close(self) -> None:
        """Close its input, and wait until it ends."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        self._process.wait()
