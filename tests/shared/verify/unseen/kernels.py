"""All wrong kernels of this folder, by name; ``truth.toml`` says what is wrong with each."""

import shared.verify.unseen.backward
import shared.verify.unseen.layer
import shared.verify.unseen.near
import shared.verify.unseen.odd
import shared.verify.unseen.residual
import shared.verify.unseen.twice  # noqa: F401  (each import keeps its kernels)
from shared.verify.unseen.right import SUBJECTS

__all__ = ["SUBJECTS"]
