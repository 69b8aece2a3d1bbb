"""The operations that the judge knows, each in a folder or a file of its own."""

from truenorm.verify.operation import Operation
from truenorm.verify.operations.layer_norm import LAYER_NORM

__all__ = ["LAYER_NORM", "OPERATIONS"]

OPERATIONS: dict[str, Operation] = {each.name: each for each in (LAYER_NORM,)}
"""By name, as a subject in another process tells it."""
