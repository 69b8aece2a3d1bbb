"""The backend as the rest of the package sees it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import ColumnGradients, Parameter, Settings
from truenorm.kernels.fused import correct, correct_backward, fast
from truenorm.kernels.fused.blocks import Source, blocks_within
from truenorm.kernels.fused.compiled.narrow.forward import statistics
from truenorm.kernels.fused.scratch import aligned, scratch_of_forward
from truenorm.kernels.operation import LAYER_NORM
from truenorm.kernels.rows import Rows

__all__ = ["FusedBackend"]

Float64 = NDArray[np.float64]


class FusedBackend:
    """Numba: one or two sweeps over each row while it is in the cache, on several threads."""

    name = "fused"

    def forward(
        self, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
    ) -> Float64:
        """Write y, and return what backward needs."""
        return _mode(settings, x, gamma, beta)[0](
            x, gamma, beta, settings.eps, y, settings.threads
        )

    def backward(
        self,
        settings: Settings,
        dy: Rows,
        x: Rows,
        kept: Float64,
        gamma: Parameter,
        beta: Parameter,
        dx: Rows,
    ) -> ColumnGradients:
        """Write dx, and return the gradients of the parameters."""
        if settings.backend != self.name and not correct.takes_pairs(x, gamma, beta):
            kept = _kept_anew(x, kept)
        return _mode(settings, x, gamma, beta)[1](
            dy, x, kept, gamma, beta, settings.eps, dx, settings.threads
        )


def _kept_anew(x: Rows, kept: Float64) -> Float64:
    """Return what this backend would have kept of rows: its bounds hold for its own sums."""
    kept = kept.copy()
    source = Source(x)
    for start, stop in blocks_within(0, x.count, x.size):
        scratch = aligned(scratch_of_forward(x.size))
        if statistics(source.block(start, stop), kept[start:stop], scratch):
            raise RuntimeError(correct_backward.X_CHANGED)
    return kept


def _mode(
    settings: Settings, x: Rows, gamma: Parameter, beta: Parameter
) -> tuple[Callable[..., Float64], Callable[..., ColumnGradients]]:
    """Return forward and backward of the mode that does this call."""
    if settings.operation != LAYER_NORM:
        raise NotImplementedError(f"the fused backend does not do {settings.operation}")
    if settings.rounding == "fast" and not correct.takes_pairs(x, gamma, beta):
        return fast.forward, fast.backward
    return correct.forward, correct_backward.backward
