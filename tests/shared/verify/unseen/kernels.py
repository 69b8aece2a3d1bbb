"""All wrong kernels of this folder, by name; ``truth.toml`` says what is wrong with each."""

import shared.verify.unseen.odd_or_two
import shared.verify.unseen.one  # noqa: F401  (each import keeps its kernels)
from shared.verify.unseen.right import SUBJECTS

__all__ = ["SUBJECTS"]
