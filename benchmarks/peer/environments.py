"""An environment for each peer, with nothing in it that another peer asked for."""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.timing import progress

__all__ = ["PEERS", "ROOT", "Peer", "python_for"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks" / "environments"  # git ignores it
BASE = ("numpy==2.4.6", "ml_dtypes==0.6.0")  # the latter is how NumPy knows bfloat16
OF_TRUENORM = (*BASE, "numba==0.68.1")


@dataclass(frozen=True)
class Peer:
    """A process that takes part, and what has to be installed for it."""

    name: str
    environment: str
    requirements: tuple[str, ...]
    needs_checkout: bool = False  # truenorm is imported from src and not installed


# The only list of versions. Every requirement is exact, so that a figure can be had again; torch
# must stay so, since a looser one may fetch gigabytes for a GPU.
PEERS = {
    peer.name: peer
    for peer in (
        Peer("textbook", "truenorm", OF_TRUENORM, needs_checkout=True),
        Peer("textbook64", "truenorm", OF_TRUENORM, needs_checkout=True),
        Peer("thinc", "thinc", (*BASE, "thinc==8.3.14")),
        Peer("torch", "torch", (*BASE, "torch==2.13.0")),
        Peer("jax", "jax", (*BASE, "jax==0.10.2", "jaxlib==0.10.2")),
        Peer("onnxruntime", "onnxruntime", (*BASE, "onnxruntime==1.31.1", "onnx==1.23.2")),
        Peer("truenorm", "truenorm", OF_TRUENORM, needs_checkout=True),
    )
}


def python_for(peer: Peer) -> Path:
    """Return the interpreter of a peer's environment, which is made if it is not there yet."""
    home = FOLDER / peer.environment
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    # Written last: an installation that was broken off, or is of other versions, is done again.
    done = home / "installed.txt"
    wanted = "\n".join(peer.requirements) + "\n"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        progress(f"installing {' '.join(peer.requirements)}")
        venv.create(home, clear=True, symlinks=os.name != "nt", with_pip=True)
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", *peer.requirements],
            check=True,
            stdout=sys.stderr,
        )
        done.write_text(wanted, encoding="utf-8")
        progress()
    return python
