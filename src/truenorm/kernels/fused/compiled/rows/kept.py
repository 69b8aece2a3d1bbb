"""What forward keeps of a row for backward: its mean as two numbers, and its variance.

Of a row that is not centred it is one number, the mean square. All are NaN if it has no result.
"""

from typing import Any

from truenorm.kernels.fused.compiling import compiled
from truenorm.kernels.ground import Centred, Numbers

__all__ = ["keep", "kept_numbers"]


@compiled
def keep(kept: Numbers, near: float, low: float, v: float, centred: Centred) -> None:
    """Keep the numbers of a row."""
    if centred is None:
        kept[0] = v
    else:
        kept[0], kept[1], kept[2] = near, low, v


@compiled
def kept_numbers(kept: Numbers, centred: Centred) -> Any:
    """Return the mean of a row as two numbers, zeros if it is not centred, and its variance."""
    if centred is None:
        return 0.0, 0.0, kept[0]
    return kept[0], kept[1], kept[2]
