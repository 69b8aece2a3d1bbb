"""The backend as the rest of the package sees it."""

import logging

import numpy as np
from numpy.typing import NDArray

from truenorm.kernels.backend import ColumnGradients, Parameter, Settings
from truenorm.kernels.operation import LAYER_NORM
from truenorm.kernels.reference import correct, fast
from truenorm.kernels.rows import Rows

__all__ = ["ReferenceBackend"]

Float64 = NDArray[np.float64]

LARGE = 10**6

logger = logging.getLogger("truenorm")


class ReferenceBackend:
    """NumPy and Python integers: always there, made to be read."""

    name = "reference"

    def forward(
        self, settings: Settings, x: Rows, gamma: Parameter, beta: Parameter, y: Rows
    ) -> Float64:
        """Write y, and return what backward needs."""
        forward = fast.forward if _is_fast(settings, x, gamma, beta) else correct.forward
        return forward(x, gamma, beta, settings.eps, y)

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
        backward = fast.backward if _is_fast(settings, x, gamma, beta) else correct.backward
        return backward(dy, x, kept, gamma, beta, settings.eps, dx)


def _is_fast(settings: Settings, x: Rows, gamma: Parameter, beta: Parameter) -> bool:
    """Return whether fast mode does this call; tell whoever waits for double-double why."""
    if settings.operation != LAYER_NORM:
        raise NotImplementedError(f"the reference backend does not do {settings.operation}")
    wide = correct.takes_pairs(x, gamma, beta)
    if wide and x.count * x.size > LARGE:
        logger.info(
            "%d float64 elements in double-double with NumPy take a while; "
            "pip install truenorm[fast] brings compiled kernels",
            x.count * x.size,
        )
    return settings.rounding == "fast" and not wide
