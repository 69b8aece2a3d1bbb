"""All wrong kernels of this folder, by name; ``truth.toml`` says what is wrong with each."""

import verify.unseen.backward
import verify.unseen.layer
import verify.unseen.near
import verify.unseen.odd
import verify.unseen.residual
import verify.unseen.twice  # noqa: F401  (each import keeps its kernels)
from verify.unseen.right import SUBJECTS

__all__ = ["SUBJECTS"]
