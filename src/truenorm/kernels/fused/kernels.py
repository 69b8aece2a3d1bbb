"""Which kernels do a whole call, by its mode and the type of its data."""

from collections.abc import Callable
from typing import Any, NamedTuple

from truenorm.exact import FLOAT64, FloatFormat
from truenorm.kernels.call import Settings
from truenorm.kernels.fused.compiled import small
from truenorm.kernels.fused.compiled.narrow import backward as narrow_backward
from truenorm.kernels.fused.compiled.narrow import forward as narrow_forward
from truenorm.kernels.fused.compiled.plain import backward as plain_backward
from truenorm.kernels.fused.compiled.plain import forward as plain_forward
from truenorm.kernels.fused.compiled.single import backward as single_backward
from truenorm.kernels.fused.compiled.single import forward as single_forward
from truenorm.kernels.fused.fast.plain import PlainSums
from truenorm.kernels.fused.fast.single import BlockSums
from truenorm.kernels.fused.sums.columns import Sums

__all__ = ["Kernels", "kernels_for"]


class Kernels(NamedTuple):
    """Both passes, backward of a small call, and sums over no rows of a size and type."""

    forward: Any
    backward: Any
    small_backward: Any
    sums: Callable[[int, FloatFormat], Any]


NARROW = Kernels(
    narrow_forward.forward,
    narrow_backward.backward,
    small.small_backward,
    lambda size, target: Sums(size, target, 0),
)
SINGLE = Kernels(
    single_forward.forward,
    single_backward.backward,
    small.small_fast_backward,
    lambda size, _: BlockSums(size),
)
PLAIN = Kernels(
    plain_forward.forward,
    plain_backward.backward,
    small.small_plain_backward,
    lambda size, _: PlainSums(size),
)


def kernels_for(settings: Settings, target: FloatFormat) -> Kernels | None:
    """Return what does a call on rows of a type; None if double-double does."""
    if settings.rounding == "fast":
        return PLAIN if target is FLOAT64 else SINGLE
    return None if target is FLOAT64 else NARROW
