"""The peers, and what has to be installed for each: the standard library is enough to read it."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEERS", "RECIPES", "ROOT", "Peer"]

ROOT = Path(__file__).resolve().parents[2]
BASE = ("numpy==2.4.6", "ml_dtypes==0.6.0")  # the latter is how NumPy knows bfloat16


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
"""Norms that run on a CPU, for their recipes; it takes part in no contest."""
