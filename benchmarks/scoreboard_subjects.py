"""Who is judged by ``python -m benchmarks.scoreboard``, and where what was found is kept."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer.environments import PEERS, ROOT, Peer

__all__ = ["BOARDS", "FOLDER", "Board", "Judged"]

FOLDER = ROOT / "benchmarks" / "judged"
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Judged:
    """A subject: its file, the peer in whose environment it runs, and what it uses of that."""

    target: str
    peer: Peer
    packages: tuple[str, ...]


LAYER_NORM = {
    "truenorm": Judged("truenorm_modes.py:correct", PEERS["truenorm"], ("truenorm", "backend")),
    "truenorm-fast": Judged("truenorm_modes.py:fast", PEERS["truenorm"], ("truenorm", "backend")),
    "textbook64": Judged("textbook_numpy.py:wide", PEERS["textbook64"], ("truenorm", "ml_dtypes")),
    "textbook": Judged("textbook_numpy.py:plain", PEERS["textbook"], ("truenorm", "ml_dtypes")),
    "torch": Judged("pytorch.py:subject", PEERS["torch"], ("torch",)),
    "jax": Judged("jax_standardize.py:stable", PEERS["jax"], ("jax", "jaxlib")),
    "jax-fast": Judged("jax_standardize.py:fast", PEERS["jax"], ("jax", "jaxlib")),
    "onnxruntime": Judged(
        "onnx_runtime.py:subject", PEERS["onnxruntime"], ("onnxruntime", "onnx")
    ),
    "onnx": Judged("onnx_reference.py:subject", PEERS["onnxruntime"], ("onnx", "ml_dtypes")),
    "thinc": Judged("thinc_layer.py:subject", PEERS["thinc"], ("thinc",)),
}
RMS_NORM = {
    "truenorm": Judged(
        "truenorm_modes.py:rms_norm_correct", PEERS["truenorm"], ("truenorm", "backend")
    ),
    "truenorm-fast": Judged(
        "truenorm_modes.py:rms_norm_fast", PEERS["truenorm"], ("truenorm", "backend")
    ),
    "textbook64": Judged("rms_norm_numpy.py:wide", PEERS["textbook64"], ("truenorm", "ml_dtypes")),
    "hugging-face": Judged("rms_norm_numpy.py:hugging_face", PEERS["textbook"], ("ml_dtypes",)),
    "torch": Judged("pytorch.py:rms_norm", PEERS["torch"], ("torch",)),
    "jax": Judged("rms_norm_jax.py:subject", PEERS["jax"], ("jax", "jaxlib")),
    "onnxruntime": Judged(
        "onnx_runtime.py:rms_norm", PEERS["onnxruntime"], ("onnxruntime", "onnx")
    ),
    "onnxruntime-simplified": Judged(
        "onnx_runtime.py:simplified", PEERS["onnxruntime"], ("onnxruntime", "onnx")
    ),
    "onnx": Judged("onnx_reference.py:rms_norm", PEERS["onnxruntime"], ("onnx", "ml_dtypes")),
}


@dataclass(frozen=True)
class Board:
    """The scoreboard of one operation: who is on it, its file, and what its tables begin with."""

    subjects: dict[str, Judged]
    results: Path
    prefix: str = ""


BOARDS = {
    "layer_norm": Board(LAYER_NORM, RESULTS / "scoreboard.json"),
    "rms_norm": Board(RMS_NORM, RESULTS / "scoreboard_rms_norm.json", "RMSNorm: "),
}
"""By operation."""
