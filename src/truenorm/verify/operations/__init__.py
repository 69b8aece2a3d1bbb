"""The operations that the judge knows, each in a folder of its own; `norms` is what they share."""

from truenorm.verify.operation import Operation
from truenorm.verify.operations.layer_norm import LAYER_NORM
from truenorm.verify.operations.rms_norm import RMS_NORM

__all__ = ["LAYER_NORM", "OPERATIONS", "RMS_NORM"]

OPERATIONS: dict[str, Operation] = {each.name: each for each in (LAYER_NORM, RMS_NORM)}
"""By name, as a subject in another process tells it."""
