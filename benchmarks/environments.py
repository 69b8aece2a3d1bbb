"""Other packages: the versions to install, their environments, and a process for each."""

import contextlib
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import ROOT, thread_variables
from truenorm.tools.progress import status_line

# Ignored by git, and by tests that read every file of benchmarks.
FOLDER = ROOT / "build" / "environments"
BASE = ("numpy==2.4.6", "ml_dtypes==0.6.0")  # ml_dtypes gives NumPy bfloat16
TORCH = (*BASE, "torch==2.13.0")
ONNX = ("onnxruntime==1.31.1", "onnx==1.23.2")
VARIABLES = {
    "PYTHONPATH": str(ROOT / "src"),  # truenorm is imported from the checkout, not installed
    "PYTHONNOUSERSITE": "1",
    "JAX_PLATFORMS": "cpu",
    "TRUENORM_ROUNDING": "",  # it would override the mode
}
"""Variables of a process that runs a package."""
SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.0


class Peer(NamedTuple):
    """A package that takes part, its environment, and the packages to install there.

    `alone` are installed without what they require. `base` is an environment whose packages are
    imported as well, so that a large package is on disk once.
    """

    name: str
    environment: str
    requirements: tuple[str, ...]
    alone: tuple[str, ...] = ()
    base: "Peer | None" = None

    @property
    def installed(self) -> str:
        """What is installed, as text: the file that marks a complete environment."""
        lines = [*self.requirements, *(f"{each}  # alone" for each in self.alone)]
        below = f"# above {self.base.name}\n{self.base.installed}" if self.base else ""
        return "".join(f"{line}\n" for line in lines) + below


# The only list of versions. Each is exact, so that a figure can be reproduced; a looser torch may
# download gigabytes for a GPU.
PEERS = {
    peer.name: peer
    for peer in (
        Peer("textbook", "truenorm", BASE),
        Peer("textbook64", "truenorm", BASE),
        Peer("thinc", "thinc", (*BASE, "thinc==8.3.14")),
        Peer("torch", "torch", TORCH),
        Peer("jax", "jax", (*BASE, "jax==0.10.2", "jaxlib==0.10.2")),
        Peer("onnxruntime", "onnxruntime", (*BASE, *ONNX)),
        Peer("truenorm", "truenorm", BASE),
    )
}
RECIPES = Peer(
    "recipes",
    "recipes",
    (
        *TORCH,
        *ONNX,
        "litgpt==0.4.11",
        "mlx[cpu]==0.32.4",
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
    if not done.exists() or done.read_text(encoding="utf-8") != peer.installed:
        below = python_for(peer.base) if peer.base else None
        status_line(f"installing {' '.join([*peer.requirements, *peer.alone])}")
        venv.create(home, clear=True, symlinks=os.name != "nt")
        if below:
            (site_packages(python) / "base.pth").write_text(f"{site_packages(below)}\n")
        for packages in (peer.requirements, ("--no-deps", *peer.alone)):
            if packages and packages != ("--no-deps",):
                # Compiling all byte code is most of installing; Python compiles what is imported.
                pip = [sys.executable, "-m", "pip", "--python", str(python)]
                install = [*pip, "install", "--quiet", "--no-compile", *packages]
                subprocess.run(install, check=True, stdout=sys.stderr)
        done.write_text(peer.installed, encoding="utf-8")
        status_line()
    return python


def megabytes_of(peer: Peer) -> dict[str, int]:
    """Return what the environments of a peer take on disk, by name."""
    sizes = megabytes_of(peer.base) if peer.base else {}
    files = (each for each in (FOLDER / peer.environment).rglob("*") if not each.is_symlink())
    return {**sizes, peer.environment: round(sum(each.stat().st_size for each in files) / 1e6)}


def site_packages(python: Path) -> Path:
    """Return the folder where an interpreter finds its packages."""
    command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.check_output(command, encoding="utf-8").strip())


VERSIONS = """\
import json, platform, sys, truenorm
from importlib.metadata import version
found = {"python": platform.python_version(), "truenorm": truenorm.__version__}
found["backend"] = next(each.name for each in truenorm.backends() if each.usable)
print(json.dumps(found | {name: version(name) for name in sys.argv[1:]}))
"""


def versions(python: Path, packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of Python, truenorm and packages in an environment, and the backend."""
    command = [str(python), "-c", VERSIONS, *packages]
    output = subprocess.check_output(command, env=os.environ | VARIABLES)
    answer: dict[str, str] = json.loads(output)
    return answer


def peer_versions(peer: Peer, python: Path) -> dict[str, str]:
    """Return the versions of a peer's requirements, of Python and of truenorm."""
    return versions(python, [each.partition("==")[0] for each in peer.requirements])


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

    def __init__(
        self, peer: Peer, python: Path, threads: int, variables: Mapping[str, str] = {}
    ) -> None:
        self.peer = peer
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.peers_worker", peer.name, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=os.environ | VARIABLES | thread_variables(threads) | dict(variables),
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
